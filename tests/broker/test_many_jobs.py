"""A seeded fuzz of several jobs on several boxes, with all that people and accidents do to them.

What must hold: a worker is never of two jobs; who is before another in line starts before it where both may; every
job that is not cancelled completes once nothing is paused or drained any more; and replay repeats every command.
"""

from random import Random

import pytest

from broker.events import (
    CancelRequested,
    DrainRequested,
    PauseRequested,
    PriorityRequested,
    Request,
    ResumeRequested,
    UndrainRequested,
)
from broker.harness import Simulation
from broker.harness_engine import Slot
from broker.harness_times import Times
from broker.lacking import lacking
from broker.placement import involved, overlap
from broker.spec import JobSpec
from broker.state import Job
from tests.broker.audit import audit
from tests.broker.support import MS, S, evaluation, job

BOXES = ("a", "b", "c")


class ManyJobs:
    """One random cluster, its jobs and its history, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.slots = [slot for box in BOXES for slot in self._box(box)]
        self.simulation = Simulation(self._times(), self.slots, persist_ns=0)
        self.specs = [self._spec(f"j{number}") for number in range(rng.randint(2, 5))]
        self.queued: set[str] = set()
        for spec in self.specs:
            user, priority = rng.choice(["ann", "bob"]), rng.choice([0, 0, 1])
            self.simulation.at(
                rng.randint(0, 10) * S,
                lambda spec=spec, user=user, priority=priority: self.simulation.submit(spec, user, priority),  # type: ignore[misc]
            )
        self.simulation._specs.update({spec.id: spec for spec in self.specs})
        for _ in range(rng.randint(0, 8)):
            self._arrange()

    def _box(self, name: str) -> list[Slot]:
        rng = self.rng
        made = [Slot(name=f"{name}/generator/{at}", role="generator") for at in range(rng.randint(0, 2))]
        made += [Slot(name=f"{name}/trainer/0", role="trainer")] if name == "a" or rng.random() < 0.7 else []
        return made + ([Slot(name=f"{name}/reward/0", role="reward")] if rng.random() < 0.5 else [])

    def _spec(self, name: str) -> JobSpec:
        """One that can run on this cluster, where everybody is there."""
        rng = self.rng
        while True:
            nodes = None if rng.random() < 0.3 else tuple(rng.sample(BOXES, rng.randint(1, 3)))
            here = [slot for slot in self.slots if nodes is None or slot.name[0] in nodes]
            generators = [slot.name for slot in here if slot.role == "generator"]
            roles = {slot.role for slot in here}
            chosen = rng.choice([None, None, (), tuple(generators[:1])])
            scoring = "dedicated" if "reward" in roles and rng.random() < 0.3 else "colocated"
            if "trainer" in roles and (chosen == () or generators):
                break
        return job(
            id=name,
            nodes=nodes,
            generators=chosen or (None if chosen is None else ()),
            scoring=scoring,
            num_global_steps=rng.randint(1, 3),
            prompts_per_rollout=2,
            updates_per_rollout=rng.choice([1, 1, 2]),
            strategy=rng.choice(["never", "always"]),
            checkpoint_every=rng.choice([0, 1]),
            deterministic=rng.random() < 0.2,
            evaluation=evaluation(rng.choice([0, 1])),
            task_retries=50,
        )

    def _times(self) -> Times:
        rng = self.rng
        return Times(
            generate=rng.randint(1, 3) * 700 * MS,
            update=rng.randint(1, 3) * 300 * MS,
            assist=900 * MS,
            score=rng.choice([0, 100 * MS]),
            prepare=rng.choice([0, 500 * MS]),
            encode=rng.choice([0, 300 * MS]),
            checkpoint=rng.choice([0, 300 * MS]),
            stage=rng.choice([0, 600 * MS]),
        )

    def _arrange(self) -> None:
        rng, simulation = self.rng, self.simulation
        at_ns, kind = rng.randint(0, 25 * S), rng.random()
        if kind < 0.7:
            simulation.at(at_ns, lambda: simulation.ask(self._request()))
            return
        name = rng.choice(list(simulation.shells))

        def act() -> None:
            if kind < 0.85:
                simulation.kill(name, 5 * S)
            elif kind < 0.93 and simulation.shells[name].reachable:
                simulation.freeze(name, 8 * S)
            elif simulation.driver_up:
                simulation.restart_driver(S, unreleased=kind < 0.97)

        simulation.at(at_ns, act)

    def _request(self) -> Request:
        rng = self.rng
        name, target = rng.choice(self.specs).id, rng.choice([*BOXES, self.slots[0].name])
        requests: list[Request] = [
            PauseRequested(job=name, by="ann"),
            ResumeRequested(job=name),
            PriorityRequested(job=name, priority=rng.randint(-1, 2)),
            DrainRequested(target=target, by="bob"),
            UndrainRequested(target=target),
            CancelRequested(job=name, after=rng.choice(["now", "micro-batch", "global-step"])),
        ]
        return rng.choice(requests)

    def check(self) -> None:
        self._run_to(60 * S)
        for target in list(self.simulation.core.state.drains):
            self.simulation.ask(UndrainRequested(target=target))
        for spec in self.specs:
            self.simulation.ask(ResumeRequested(job=spec.id))
        self._run_to(2000 * S)
        self.simulation.settle()
        for spec in self.specs:
            found = self.simulation.job(spec.id)
            assert found.state in ("completed", "cancelled"), f"{spec.id}: {self.simulation.describe()}"
            audit(self.simulation, spec, retold=True)

    def _run_to(self, end_ns: int) -> None:
        while self.simulation.now_ns < end_ns and not self.simulation.ended():
            assert self.simulation.step()
            if self.simulation.driver_up:
                self._look()

    def _look(self) -> None:
        state = self.simulation.core.state
        active = state.active()
        for worker in state.workers.values():
            assert sum(involved(each, worker) for each in active) <= 1, f"{worker.name} is of two jobs"
            lease = state.leases.get(worker.lease or "")
            assert lease is None or involved(state.jobs[lease.job], worker)
        started = [each for each in active if each.id in self.queued and each.state == "preparing"]
        self.queued = {each.id for each in state.jobs.values() if each.state == "queued"}
        for name in self.queued:
            assert state.jobs[name].reason not in ("", "submitted"), "it waits, and does not say for what"
            for each in started:
                self._in_turn(each, state.jobs[name])

    def _in_turn(self, started: Job, waits: Job) -> None:
        """Users' usage may have changed since the start, so that it is not asked here who used less."""
        numbers = list(self.simulation.core.state.jobs)
        before = waits.priority > started.priority or (
            waits.priority == started.priority
            and waits.user == started.user
            and numbers.index(waits.id) < numbers.index(started.id)
        )
        could = not lacking(self.simulation.core.state, waits)
        assert not (before and could and overlap(started.spec, waits.spec)), f"{started.id} started before {waits.id}"


@pytest.mark.parametrize("block", range(3))
def test_fuzz(block: int) -> None:
    for seed in range(30 * block, 30 * (block + 1)):
        try:
            ManyJobs(seed).check()
        except (AssertionError, TimeoutError, ValueError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
