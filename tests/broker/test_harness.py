"""The harness itself: virtual time, exact shares, faults as arranged; a job that is stuck is said to be."""

from dataclasses import replace
from fractions import Fraction

import pytest

from broker.commands import Free, SendTask
from broker.events import WorkerBeat
from broker.harness import Simulation
from broker.harness_engine import Engine, Sample, Slot, honest
from broker.harness_times import Load, Times
from broker.harness_world import Blob, InvariantBroken, World
from digend.wire.records import Record, StepRecord, TaskRecord
from digend.wire.tasks import CommitTask, GenerateTask, SampleScore, ScoreTask
from tests.broker.support import GENERATOR, MS, TIMES, TRAINER, S, bodies, finished, job, simulate, slots

GENERATE = GenerateTask(
    job="j1",
    incarnation=0,
    version=0,
    purpose="train",
    global_step=0,
    rollout=0,
    micro_batch=0,
    fragment=0,
    groups=(),
    sigmas=(),
)


def test_durations_of_shares() -> None:
    times = Times(generate=900, update=500, assist=700, score=90, commit=20, evaluate=60)
    half = Load(share=Fraction(1, 2), speed=Fraction(1, 3))
    assert times.task_ns(GENERATE, Load()) == 900
    assert times.task_ns(GENERATE, half) == 1350
    assert times.task_ns(replace(GENERATE, assist=True), half) == 350
    assert times.task_ns(replace(GENERATE, purpose="evaluate"), half) == 90
    assert replace(times, assist=None).task_ns(replace(GENERATE, assist=True), half) == 450
    score = ScoreTask(
        job="j1", incarnation=0, purpose="train", global_step=0, rollout=0, micro_batch=0, fragment=0, items=()
    )
    assert times.task_ns(score, half) == 135
    commit = CommitTask(job="j1", incarnation=0, version=0, global_step=0, micro_batches=(), z0=0, z=0)
    assert times.task_ns(commit, half) == 20


def test_time_is_virtual_and_exact() -> None:
    simulation = finished(job(num_global_steps=1), 1, times=Times(generate=3, update=5, score=2, commit=7))
    spans = {(body.task, body.end_ns - body.start_ns) for body in bodies(simulation, TaskRecord)}
    assert {("generate", 3), ("score", 2), ("update", 5), ("commit", 7)} <= spans


def test_a_job_that_is_stuck_is_named() -> None:
    simulation = Simulation(TIMES, slots(1, trainer=False))
    simulation.submit(job())
    with pytest.raises(TimeoutError, match="no trainer is connected"):
        simulation.run(limit_ns=60 * S)


def test_a_cluster_of_nobody_has_nothing_to_do() -> None:
    simulation = Simulation(TIMES, [])
    simulation.submit(job())
    with pytest.raises(TimeoutError, match="j1 queued"):
        simulation.run()


def test_actions_happen_at_their_time_in_order() -> None:
    simulation = Simulation(TIMES, slots(1))
    seen: list[tuple[str, int]] = []
    for name, at in (("late", 9), ("first", 5), ("second", 5)):
        simulation.at(at * S, lambda name=name: seen.append((name, simulation.now_ns // S)))  # type: ignore[misc]
    simulation.settle()
    assert seen == [("first", 5), ("second", 5), ("late", 9)]


def test_heartbeats_carry_progress() -> None:
    simulation = finished(job(num_global_steps=1), times=replace(TIMES, generate=20 * S))
    beats = [
        event
        for batch in simulation.batches
        for event in batch.events
        if isinstance(event, WorkerBeat) and event.lease is not None
    ]
    assert beats
    assert all(beat.done > 0 for beat in beats)


def test_a_frozen_task_ends_later_by_as_long_as_it_stood_still() -> None:
    def end(freeze_ns: int) -> int:
        simulation = simulate(job(num_global_steps=1), 1)
        if freeze_ns:
            simulation.at(300 * MS, lambda: simulation.freeze(GENERATOR, freeze_ns))
        simulation.run()
        generated = [body for body in bodies(simulation, TaskRecord) if body.task == "generate"]
        return int(generated[0].end_ns)

    assert end(0) == 800 * MS
    assert end(2 * S) == 2800 * MS


def test_samples_may_come_with_their_scores() -> None:
    """s = 0: no score task; a sample whose reward fails goes through the queue all the same."""
    spec = job(num_global_steps=1)
    simulation = finished(spec, 1, times=replace(TIMES, score=0))
    assert not [body for body in bodies(simulation, TaskRecord) if body.task == "score"]

    def scorer(sample: Sample) -> SampleScore:
        score = honest(sample)
        return replace(score, reward=None, failure="late") if (sample.index, sample.attempt) == (0, 0) else score

    again = finished(spec, 1, times=replace(TIMES, score=0), scorer=scorer)
    assert len([body for body in bodies(again, TaskRecord) if body.task == "score"]) == 4
    (record,) = bodies(again, StepRecord)
    assert (record.num_masked, record.z) == (0, 32)


def test_what_can_never_be_right_is_refused() -> None:
    world = World()
    world.blobs["i1"] = {}
    engine = Engine(Slot(name=GENERATOR, role="generator"), "i1", world, honest, False)
    with pytest.raises(InvariantBroken, match="before it has loaded"):
        engine.perform(GENERATE)
    ref = world.keep("i1", "x", Blob(kind="samples", job="j1", digest="pixels"))
    world.free("i1", ref.id)
    simulation = simulate(job())
    simulation.world.freed[ref.id] = 1
    item = replace(_score_task(simulation).items[0], blob=ref)
    with pytest.raises(InvariantBroken, match="was freed"):
        simulation._check_inputs(replace(_score_task(simulation), items=(item,)))


def _score_task(simulation: Simulation) -> ScoreTask:
    if not simulation.batches:
        simulation.run()
    return next(
        command.task
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and isinstance(command.task, ScoreTask)
    )


def test_a_hole_in_the_records_is_refused() -> None:
    simulation = finished(job(num_global_steps=1))
    last = simulation.records["j1"][-1]
    with pytest.raises(InvariantBroken, match="comes after"):
        simulation._write(Record(job="j1", seq=last.seq + 2, at_ns=0, body=last.body))


def test_lineage_of_policies() -> None:
    simulation = finished(job(num_global_steps=3))
    made = [step.made for step in simulation.world.ledger]
    assert made[-1] is not None
    assert simulation.world.lineage(made[-1]) == (*reversed(made), "base")


def test_frees_reach_the_world() -> None:
    simulation = finished(job(num_global_steps=1))
    told = {
        blob
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, Free)
        for blob in command.blobs
    }
    assert told == set(simulation.world.freed)
    assert simulation.shells[TRAINER].alive
