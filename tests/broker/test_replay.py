"""Replay: the same batches give the same commands; a seeded fuzz of everything that can go wrong at once."""

import dataclasses
from collections.abc import Iterable
from random import Random

import pytest

from broker import events
from broker.core import Core
from broker.events import Event, WeightsNotStaged, WeightsStaged
from broker.harness import Simulation
from broker.harness_engine import NUM_TENSORS, Sample, Slot, honest
from broker.harness_shell import Shell
from broker.harness_times import Times
from broker.spec import JobSpec
from digend.wire import codec
from digend.wire.refs import WeightsRef
from digend.wire.tasks import ResultBody, SampleScore, ScoreResult, TaskBody, TaskError
from tests.broker.audit import audit
from tests.broker.support import MS, S, evaluation, finished, job, last_state, simulate, slots


def test_replay_gives_the_same_commands_byte_for_byte() -> None:
    """Through the codec and back, as the journal keeps them."""
    simulation = simulate(job(strategy="always", evaluation=evaluation(2, every=1)), 2)
    simulation.at(2 * S, lambda: simulation.kill("n/generator/0", S))
    simulation.at(4 * S, lambda: simulation.kill("n/trainer/0", S))
    simulation.at(7 * S, simulation.restart_driver)
    simulation.run()
    core = Core()
    known = tuple(getattr(events, name) for name in dir(events) if dataclasses.is_dataclass(getattr(events, name)))
    for batch in simulation.batches:
        read = [codec.decode(codec.encode(event), known, limit=None) for event in batch.events]
        answered = core.step(batch.now_ns, read)
        assert [codec.encode(each) for each in answered] == [codec.encode(each) for each in batch.commands]


def test_equal_simulations_give_equal_batches() -> None:
    first, second = (finished(job(strategy="always"), 3) for _ in range(2))
    assert first.batches == second.batches


def test_a_replay_that_differs_is_found() -> None:
    simulation = finished(job(num_global_steps=1))
    assert simulation.replay() is None
    at = next(at for at, batch in enumerate(simulation.batches) if at > 10 and batch.commands)
    simulation.batches[at] = dataclasses.replace(simulation.batches[at], commands=())
    assert simulation.replay() == at


class Fuzz:
    """One random cluster, job and history of faults, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        rng = self.rng
        self.chaos, self.masks, self.breaks = (rng.random() < share for share in (0.5, 0.4, 0.4))
        self.spec = self._spec()
        colocated = self.spec.generators == ()
        num_rewards = 2 if self.spec.scoring == "dedicated" else 0
        made = slots(0 if colocated else rng.randint(1, 3), num_rewards)
        self.simulation = Simulation(
            self._times(),
            [self._odd(slot) for slot in made],
            scorer=self._score,
            tamper=self._tamper,
            stage_tamper=self._stage,
            courier=self._deliver,
            persist_ns=rng.choice([0, S]),
        )
        self.simulation.submit(self.spec)
        for _ in range(rng.randint(0, 4)):
            self._arrange()

    def _spec(self) -> JobSpec:
        rng = self.rng
        updates = rng.choice([1, 1, 1, 2])
        return job(
            num_global_steps=rng.randint(1, 4),
            updates_per_rollout=updates,
            partition=rng.choice(["gap", "gap", "batch", "naive"]),
            prompts_per_rollout=rng.choice([2, 4]),
            staleness=rng.choice([0.0, 0.5]) if updates == 1 else 0.0,
            strategy=rng.choice(["never", "always", "static:1", "static:3", "planned", "bts"]),
            scoring=rng.choice(["colocated", "dedicated"]),
            generators=() if rng.random() < 0.15 else None,
            deterministic=rng.random() < 0.2,
            checkpoint_every=rng.choice([0, 1, 2]),
            evaluation=evaluation(rng.choice([0, 2]), every=rng.choice([0, 1])),
            task_retries=50,
            lease_s=rng.choice([10.0, 30.0]),
        )

    def _times(self) -> Times:
        rng = self.rng
        return Times(
            generate=rng.randint(1, 3) * 700 * MS,
            update=rng.randint(1, 3) * 300 * MS,
            assist=900 * MS,
            score=rng.choice([0, 100 * MS, 700 * MS]),
            commit=rng.choice([0, 200 * MS]),
            switch=rng.choice([0, 100 * MS]),
            prepare=rng.choice([0, 500 * MS]),
            encode=rng.choice([0, 300 * MS]),
            evaluate=rng.choice([0, 400 * MS]),
            checkpoint=rng.choice([0, 300 * MS]),
            reset=rng.choice([0, 100 * MS]),
            stage=rng.choice([0, 600 * MS]),
        )

    def _odd(self, slot: Slot) -> Slot:
        return dataclasses.replace(slot, encoder=self.rng.choice(["a", "a", "b"]))

    def _score(self, sample: Sample) -> SampleScore:
        score, chance = honest(sample), self.rng.random()
        if self.masks and chance < 0.1:
            return dataclasses.replace(score, reward=float("nan"))
        if self.masks and chance < 0.2:
            return dataclasses.replace(score, reward=None, failure="down")
        return score

    def _tamper(self, shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        if self.breaks and self.rng.random() < 0.05:
            reason = self.rng.choice(["blob_lost", "out_of_memory", "internal", "applied", "checkpoint", "cancelled"])
            return TaskError(reason=reason, message="arranged", retry=True)
        if self.masks and isinstance(result, ScoreResult) and self.rng.random() < 0.1:
            return dataclasses.replace(result, scores=result.scores[:1])
        return result

    def _stage(self, shell: Shell, weights: WeightsRef) -> int | TaskError:
        if self.breaks and self.rng.random() < 0.1:
            reason = self.rng.choice(["blob_lost", "internal"])
            return TaskError(reason=reason, message="arranged", retry=True)
        return NUM_TENSORS

    def _deliver(self, now_ns: int, event: Event) -> Iterable[tuple[int, Event]]:
        """Twice, late, or not at all (what is not acknowledged is told again)."""
        chance = self.rng.random() if self.chaos else 1.0
        if chance < 0.1:
            return [(now_ns, event), (now_ns + self.rng.randint(0, 3 * S), event)]
        if chance < 0.2:
            return [(now_ns + self.rng.randint(0, 2 * S), event)]
        if chance < 0.25 and not isinstance(event, WeightsStaged | WeightsNotStaged):
            return []
        return [(now_ns, event)]

    def _arrange(self) -> None:
        rng, simulation = self.rng, self.simulation
        name, for_ns, kind = rng.choice(list(simulation.shells)), rng.randint(0, 20 * S), rng.random()

        def act() -> None:
            shell = simulation.shells[name]
            if kind < 0.4 and shell.alive:
                simulation.kill(name, for_ns, noticed=kind < 0.25)
            elif kind < 0.6 and shell.reachable:
                simulation.freeze(name, for_ns)
            elif kind < 0.75 and shell.reachable:
                simulation.cut(name, for_ns)
            elif kind < 0.85:
                simulation.disk(full=True)
                simulation.at(simulation.now_ns + for_ns, lambda: simulation.disk(full=False))
            elif simulation.driver_up:
                simulation.restart_driver(for_ns // 4, unreleased=kind < 0.93)

        simulation.at(rng.randint(0, 12 * S), act)

    def check(self) -> None:
        self.simulation.run(limit_ns=5000 * S)
        end_ns = self.simulation.now_ns
        self.simulation.run(until=lambda: self.simulation.now_ns > end_ns + 60 * S)
        self.simulation.settle()
        assert last_state(self.simulation) == ("completed", "")
        audit(self.simulation, self.spec, masked=self.masks or self.breaks, retold=True)


@pytest.mark.parametrize("block", range(8))
def test_fuzz(block: int) -> None:
    """Whatever goes wrong, the job completes, every sample counts once, and nothing is left behind."""
    for seed in range(40 * block, 40 * (block + 1)):
        try:
            Fuzz(seed).check()
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
