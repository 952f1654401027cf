"""The strategies on the real core under virtual time: same answers, same makespans as the model of the schedule."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from broker.forecast import snapshot_of
from broker.harness import Simulation
from broker.harness_times import Times as Durations
from broker.microbatch import Phase
from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from digend.wire.records import Decision, StepRecord, TaskRecord
from tests.broker.support import GENERATOR, MS, TRAINER, S, job, prompts, slots


def setup_of(rng: Random, *, steps: int, dedicated: bool = False, switch: int = 0, staleness: float = 0.0) -> Setup:
    """In milliseconds. B starts at 2: a single one the trainer may claim before the generator has its weights."""
    times = Times(
        generate=rng.randint(1, 12) * 10,
        assist=rng.randint(10, 125),
        update=rng.randint(10, 125),
        score=rng.randint(1, 40) if dedicated or rng.random() < 0.5 else 0,
        switch=switch,
        commit=rng.choice((0, rng.randint(1, 50))),
    )
    model = Model(times=times, servers=rng.randint(1, 2) if dedicated else 0)
    return Setup(model=model, micro_batches=rng.randint(2, 14), steps=steps, staleness=staleness)


def live(setup: Setup, strategy: str, speeds: Sequence[int] = (1,)) -> Simulation:
    """`speeds`: of the generators, which share every micro-batch without a remainder."""
    times, servers = setup.model.times, setup.model.servers
    durations = Durations(**{name: ticks * MS for name, ticks in times.given().items()})
    spec = job(
        prompts=prompts(setup.micro_batches),
        prompts_per_rollout=setup.micro_batches,
        num_global_steps=setup.steps,
        strategy=strategy,
        staleness=setup.staleness,
        scoring="dedicated" if servers else "colocated",
        checkpoint_every=0,
        samples_per_prompt=2 * sum(speeds),
    )
    pool = [
        replace(slot, speed=Fraction(speed)) for slot, speed in zip(slots(len(speeds), 0, False), speeds, strict=True)
    ]
    simulation = Simulation(durations, pool + slots(0, servers), torpid_s=1e6, lost_s=2e6)
    simulation.submit(spec)
    simulation.run()
    return simulation


def makespans(simulation: Simulation) -> list[int]:
    ends = [record.at_ns // MS for record in simulation.records["j1"] if isinstance(record.body, StepRecord)]
    return [after - before for before, after in pairwise([0, *ends])]


def modelled(setup: Setup, strategy: str) -> list[int]:
    run = Run.of(setup)
    run.to_end(strategy_of(strategy))
    return [after - before for before, after in pairwise([0, *run.commits])]


def decisions(simulation: Simulation) -> list[Decision]:
    return [record.body for record in simulation.records["j1"] if isinstance(record.body, Decision)]


@pytest.mark.parametrize("strategy", ["never", "always", "static:2"])
@pytest.mark.parametrize("staleness", [0.25, 1.0])
def test_stale_work_of_the_core_is_that_of_the_model(strategy: str, staleness: float) -> None:
    rng = Random(f"{strategy} {staleness}")
    for _ in range(12):
        setup = setup_of(rng, steps=4, staleness=staleness)
        assert makespans(live(setup, strategy)) == modelled(setup, strategy), setup


@pytest.mark.parametrize("strategy", ["bts", "planned"])
@pytest.mark.parametrize("kind", ["colocated", "dedicated", "switch"])
def test_once_times_are_measured_the_core_takes_as_long_as_the_model(strategy: str, kind: str) -> None:
    rng = Random(f"{strategy} {kind}")
    for _ in range(12):
        setup = setup_of(rng, steps=6, dedicated=kind == "dedicated", switch=17 * (kind == "switch"))
        alone = Setup(model=setup.model, micro_batches=setup.micro_batches)
        assert makespans(live(setup, strategy))[4:] == modelled(alone, strategy) * 2, setup


@pytest.mark.parametrize("strategy", ["always", "static:2", "bts", "planned"])
@pytest.mark.parametrize("speeds", [(1, 1), (1, 1, 2)])
def test_a_pool_takes_as_long_as_one_generator_of_its_speed(strategy: str, speeds: tuple[int, ...]) -> None:
    """Scoring as dear as generation: a TAG result is scored by all of them too."""
    rng, unit = Random(f"{strategy} {speeds}"), 10 * sum(speeds)
    for _ in range(5):
        times = Times(
            generate=rng.randint(2, 8) * unit,
            assist=rng.randint(unit, 8 * unit),
            update=rng.randint(unit // 2, 8 * unit),
            score=rng.randint(2, 8) * unit,
            commit=rng.choice((0, rng.randint(1, 50))),
        )
        setup = Setup(model=Model(times=times), micro_batches=rng.randint(4, 12), steps=6)
        alone = replace(setup, steps=1)
        simulation = live(setup, strategy, speeds)
        assert makespans(simulation)[4:] == modelled(alone, strategy) * 2, setup
        if strategy == "planned":
            assert_as_predicted(simulation, since=3)


def assert_as_predicted(simulation: Simulation, since: int) -> None:
    """From a global step on, every prediction of the end of the last update comes true to the tick."""
    job_records = simulation.records["j1"]
    updates = [record for record in job_records if isinstance(record.body, TaskRecord) and record.body.task == "update"]
    ends = {record.body.global_step: record.at_ns for record in updates if isinstance(record.body, TaskRecord)}
    for record in job_records:
        body = record.body
        if isinstance(body, Decision) and body.end_us is not None and body.global_step >= since:
            assert record.at_ns + body.end_us * 1000 == ends[body.global_step]


def test_what_is_predicted_is_what_happens() -> None:
    setup = Setup(model=Model(times=Times(generate=100, assist=120, update=40, score=7)), micro_batches=12, steps=5)
    simulation = live(setup, "planned")
    ends = [record.at_ns for record in simulation.records["j1"] if isinstance(record.body, StepRecord)]
    told = [
        (record.at_ns + record.body.end_us * 1000, record.body.global_step)
        for record in simulation.records["j1"]
        if isinstance(record.body, Decision) and record.body.end_us is not None
    ]
    assert len([step for _, step in told if step >= 2]) > 10
    assert all(end == ends[step] for end, step in told if step >= 2)


def test_decisions_say_why() -> None:
    setup = Setup(model=Model(times=Times(generate=100, assist=120, update=40, score=7)), micro_batches=12, steps=4)
    last = [each for each in decisions(live(setup, "bts")) if each.global_step == 3 and each.states]
    assert last[0].answer == "tag"
    assert last[0].times_us == {name: 1000 * ticks for name, ticks in setup.model.times.given().items()}
    assert last[0].tags >= 1
    assert last[0].end_us is not None
    assert last[0].without_us is not None
    assert last[0].end_us < last[0].without_us
    assert not any(each.exhausted for each in last)


def test_two_samples_tell_what_tag_takes() -> None:
    """The first one never counts alone. Dear TAG costs nobody a micro-batch."""
    setup = Setup(model=Model(times=Times(generate=50, assist=5000, update=40)), micro_batches=6, steps=5)
    simulation = live(setup, "planned")
    told = [(each.global_step, each.answer) for each in decisions(simulation) if each.answer in ("tag", "probe")]
    assert told == [(0, "probe"), (1, "probe")]
    assert max(each.times_us.get("assist", 0) for each in decisions(simulation)) == 5_000_000


@pytest.mark.parametrize("switch", [0, 30])
def test_what_a_probe_says_is_what_tag_takes(switch: int) -> None:
    """From the second global step on: by then an update with the switch before it is known, and one without."""
    times = Times(generate=100, assist=120, update=40, score=8, switch=switch)
    simulation = live(Setup(model=Model(times=times), micro_batches=12, steps=3), "planned")
    by_step = {each.global_step: each.times_us for each in decisions(simulation) if each.times_us}
    assert by_step[2] == {name: 1000 * ticks for name, ticks in times.given().items()}


def waits_in_step(simulation: Simulation, step: int) -> bool:
    job = simulation.core.state.jobs.get("j1")
    return job is not None and job.global_step == step and job.trainer_waits


def test_a_trainer_that_waits_is_asked_again_when_a_generator_is_lost() -> None:
    """What it waited for may not come, and the answer may be another one with one generator less."""
    durations = Durations(generate=800 * MS, assist=9000 * MS, update=400 * MS)
    spec = job(prompts=prompts(8), prompts_per_rollout=8, num_global_steps=4, strategy="planned", checkpoint_every=0)
    simulation = Simulation(durations, slots(2))
    simulation.submit(spec)
    simulation.run(until=lambda: waits_in_step(simulation, 3))
    asked = len(decisions(simulation))
    simulation.kill(GENERATOR, 3600 * S)
    simulation.run(until=lambda: len(decisions(simulation)) > asked)
    assert simulation.now_ns < 60 * S
    assert decisions(simulation)[asked].global_step == 3


def test_what_is_in_uq_for_a_later_global_step_of_the_rollout_is_counted() -> None:
    """One rollout, two optimizer steps: the trainer waits for the first while the second's are in UQ."""
    durations = Durations(generate=50 * MS, assist=60 * MS, update=300 * MS, commit=20 * MS)
    spec = job(
        prompts=prompts(8),
        prompts_per_rollout=8,
        num_global_steps=4,
        strategy="planned",
        updates_per_rollout=2,
        checkpoint_every=0,
    )
    simulation = Simulation(durations, slots(1), torpid_s=1e6, lost_s=2e6)
    simulation.submit(spec)
    simulation.run(until=lambda: waits_in_step(simulation, 2) or later_in_uq(simulation) > 0)
    found, state = simulation.job("j1"), simulation.core.state
    trainer = state.workers[TRAINER]
    model = Model(times=Times(generate=50_000, assist=60_000, update=300_000))
    snapshot = snapshot_of(state, found, trainer, model)
    assert snapshot is not None
    left = sum(batch.phase not in (Phase.APPLIED, Phase.UPDATING) for batch in found.rollout)
    assert later_in_uq(simulation) > 0
    assert snapshot.remaining == left


def later_in_uq(simulation: Simulation) -> int:
    found = simulation.core.state.jobs.get("j1")
    return sum(batch.global_step > found.global_step for batch, _ in found.uq.waiting()) if found else 0
