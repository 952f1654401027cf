"""The record stream and the time account: numbers without holes, every second of every worker once, with a cause."""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from broker.harness import Simulation
from broker.harness_engine import Sample, Slot
from broker.harness_shell import Shell
from broker.harness_times import Times
from broker.spec import JobSpec
from digend.telemetry.stages import stage_table, task_stages
from digend.wire.records import IdleRecord, StagingRecord, StepRecord, TaskFailure, TaskRecord
from digend.wire.tasks import Receipt, ResultBody, SampleScore, TaskBody, TaskError
from tests.broker.audit import check_seconds
from tests.broker.support import (
    GENERATOR,
    MS,
    TIMES,
    TRAINER,
    S,
    bodies,
    evaluation,
    finished,
    job,
    last_state,
    simulate,
)

ALL_SLOW = Times(
    generate=800 * MS,
    update=500 * MS,
    assist=900 * MS,
    score=100 * MS,
    commit=200 * MS,
    switch=50 * MS,
    prepare=3000 * MS,
    encode=300 * MS,
    evaluate=400 * MS,
    checkpoint=700 * MS,
    reset=10 * MS,
    stage=350 * MS,
)

KINDS: list[tuple[JobSpec, tuple[int, int]]] = [
    (job(evaluation=evaluation(3, every=1)), (2, 0)),
    (job(strategy="always", scoring="dedicated", evaluation=evaluation(2)), (2, 2)),
    (job(generators=(), evaluation=evaluation(2, every=1)), (0, 0)),
    (job(updates_per_rollout=2, num_global_steps=4, strategy="static:1"), (3, 0)),
    (job(deterministic=True), (2, 0)),
    (job(strategy="always", staleness=0.5, num_global_steps=4), (2, 0)),
]


@pytest.mark.parametrize("strategy", ["always", "never"])
def test_switches_and_stagings_are_told_and_the_table_still_sums_up(strategy: str) -> None:
    simulation = finished(job(strategy=strategy, num_global_steps=4), times=ALL_SLOW)
    table = stage_table(simulation.records["j1"])
    assert table.unaccounted_share < 1e-9
    for row in table.seconds.values():
        assert sum(row.values()) == pytest.approx(table.wall_s, rel=1e-9)
    tasks = [task for task in bodies(simulation, TaskRecord) if task.switched]
    assert {task.worker for task in tasks} == ({TRAINER} if strategy == "always" else set())
    assert ("switch" in table.seconds[TRAINER]) == (strategy == "always")
    staged = bodies(simulation, StagingRecord)
    assert {each.end_ns - each.start_ns for each in staged} == {ALL_SLOW.stage}
    assert [each.version for each in staged if each.worker == GENERATOR] == [0, 1, 2, 3, 4][: len(staged) // 2]
    assert table.staging_s[GENERATOR] == pytest.approx(ALL_SLOW.stage * len(staged) / 2 / S)


def test_a_switch_that_no_receipt_tells_is_taken_from_the_update_it_is_part_of() -> None:
    """A real trainer's caches are cold after TAG: its update takes longer, and nothing in it is called a switch."""
    receipt = Receipt(total_ns=9 * S, stages=(("fetch", S), ("update", 8 * S)))
    task = TaskRecord(worker="t", task="update", lease="", start_ns=0, end_ns=10 * S, receipt=receipt)
    assert stages_of(replace(task, switched=True, switch_ns=3 * S)) == {
        "switch": 3 * S,
        "fetch": S,
        "update": 5 * S,
        "dispatch": S,
    }
    longer = stages_of(replace(task, switched=True, switch_ns=30 * S))
    assert longer == {"switch": 8 * S, "fetch": S, "dispatch": S}, "no more than the update itself"
    measured = replace(receipt, stages=(("switch_offload", S), ("switch_restore", S), ("update", 7 * S)))
    both = stages_of(replace(task, receipt=measured, switched=True, switch_ns=3 * S))
    assert both == {"switch": 3 * S, "update": 6 * S, "dispatch": S}, "what the receipt tells of it counts once"


def stages_of(task: TaskRecord) -> dict[str, int]:
    told: dict[str, int] = defaultdict(int)
    for stage, ns in task_stages(task):
        told[stage] += ns
    return {stage: ns for stage, ns in told.items() if ns}


@pytest.mark.parametrize(("spec", "cluster"), KINDS)
def test_seconds_tile_the_job_for_every_worker(spec: JobSpec, cluster: tuple[int, int]) -> None:
    simulation = finished(spec, *cluster, times=ALL_SLOW)
    check_seconds(simulation, spec, list(simulation.shells))


def test_seconds_tile_the_job_whatever_fails() -> None:
    """Failed, lost and revoked tasks too, with a driver restart and a trainer restart in between."""
    for seed in range(30):
        rng = Random(seed)

        def tamper(shell: Shell, task: TaskBody, result: ResultBody, rng: Random = rng) -> ResultBody | TaskError:
            if rng.random() < 0.1:
                reason = rng.choice(["blob_lost", "internal", "out_of_memory"])
                return TaskError(reason=reason, message="arranged", retry=True)
            return result

        spec = job(evaluation=evaluation(2), task_retries=50)
        simulation = simulate(spec, 3, times=ALL_SLOW, tamper=tamper)
        simulation.at(rng.randrange(3, 12) * S, simulation.restart_driver)
        simulation.at(rng.randrange(13, 16) * S, lambda run=simulation: run.kill(TRAINER, S))  # type: ignore[misc]
        simulation.run(limit_ns=1000 * S)
        assert last_state(simulation) == ("completed", "")
        check_seconds(simulation, spec, [name for name in simulation.shells if name != TRAINER])
        assert bodies(simulation, TaskFailure)


def test_idle_time_is_a_bubble_only_while_work_is_outstanding() -> None:
    simulation = finished(job(evaluation=evaluation(2)), times=ALL_SLOW)
    causes: dict[str, set[bool]] = defaultdict(set)
    for body in bodies(simulation, IdleRecord):
        causes[body.cause].add(body.bubble)
    assert all(len(kinds) == 1 for kinds in causes.values())
    bubbles = {cause for cause, (bubble,) in causes.items() if bubble}
    assert bubbles <= {"generation", "reward", "update", "weights", "encoding of prompts"}
    assert {"generation", "update"} <= bubbles
    assert {"checkpoint", "evaluation before", "evaluation after"} <= set(causes) - bubbles


def test_step_records_add_up() -> None:
    spec = job(num_global_steps=3)
    simulation = finished(spec)
    steps = bodies(simulation, StepRecord)
    for body in steps:
        assert (body.num_samples, body.num_selected, body.num_groups) == (16, 16, 4)
        assert (body.z0, body.z, body.num_masked, body.num_dropped_groups) == (32, 32, 0, 0)
        assert body.loss == 0.5
        assert body.ratio_mean == 1.0
        assert 0 < body.reward_mean < 1
        assert body.components == {"reward": pytest.approx(body.reward_mean)}
    total = simulation.job("j1").finished_ns
    assert total is not None
    assert sum(body.seconds for body in steps) == pytest.approx(total / S)


def test_task_records_carry_the_workers_receipt() -> None:
    simulation = finished(job(num_global_steps=1))
    tasks = bodies(simulation, TaskRecord)
    for body in tasks:
        assert body.receipt.total_ns == body.end_ns - body.start_ns
    generated = [body for body in tasks if body.task == "generate"]
    assert sum(body.num_samples for body in generated) == 16
    assert {body.micro_batch for body in generated} == {0, 1, 2, 3}
    assert {body.version for body in generated} == {0}


def test_numbers_have_no_holes_across_restarts() -> None:
    """The harness refuses a hole; that it goes on from where it was is looked at here."""
    simulation = simulate(job(num_global_steps=2))
    simulation.at(2 * S, lambda: simulation.restart_driver(unreleased=True))
    simulation.at(5 * S, lambda: simulation.kill(GENERATOR, S))
    simulation.run()
    simulation.settle()
    records = simulation.records["j1"]
    assert [record.seq for record in records] == list(range(len(records)))
    assert all(before.at_ns <= after.at_ns for before, after in pairwise(records))
    assert simulation.job("j1").next_record == len(records)


def run_with_speeds(*speeds: int, times: Times = TIMES) -> Simulation:
    """Generators of unlike speed."""
    made = [Slot(name=f"n/generator/{at}", role="generator", speed=Fraction(speed)) for at, speed in enumerate(speeds)]
    simulation = Simulation(times, [*made, Slot(name=TRAINER, role="trainer")], persist_ns=0)
    simulation.submit(job(num_global_steps=8, samples_per_prompt=8))
    simulation.run()
    return simulation


def test_shares_follow_measured_speed() -> None:
    """Of 8 samples, a generator that is three times as fast gets six once it is known."""
    simulation = run_with_speeds(3, 1)
    shares = [
        (body.worker, body.num_samples)
        for body in bodies(simulation, TaskRecord)
        if body.task == "generate" and body.start_ns > 8 * S
    ]
    # A worker that would idle at the tail takes a share that its owner has not begun.
    assert sorted({count for _, count in shares}) == [2, 6]
    owned = [(worker, count) for worker, count in shares if (worker == GENERATOR) == (count == 6)]
    assert len(owned) >= 0.8 * len(shares)


def test_without_measurements_shares_are_equal() -> None:
    simulation = run_with_speeds(1, 1)
    assert {body.num_samples for body in bodies(simulation, TaskRecord) if body.task == "generate"} == {4}


def test_fast_and_slow_generators_end_together() -> None:
    simulation = run_with_speeds(3, 1, times=replace(TIMES, update=10 * MS))
    end = simulation.job("j1").finished_ns
    assert end is not None
    busy = sum(body.end_ns - body.start_ns for body in bodies(simulation, TaskRecord) if "generator" in body.worker)
    assert busy / (2 * end) > 0.85


def test_with_fewer_samples_than_generators_micro_batches_take_turns() -> None:
    """Two samples on four equal generators: two micro-batches are made side by side, and none is claimed ahead."""
    spec = job(samples_per_prompt=2, num_global_steps=1)
    simulation = finished(spec, 4)
    made: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for body in bodies(simulation, TaskRecord):
        if body.task == "generate":
            made[body.micro_batch].add((body.worker, body.start_ns))
    assert {worker for worker, _ in made[0]} == {"n/generator/0", "n/generator/1"}
    assert {worker for worker, _ in made[1]} == {"n/generator/2", "n/generator/3"}
    starts = [min(start for _, start in made[index]) for index in range(4)]
    assert starts[0] == starts[1] < starts[2] == starts[3]


def test_times_of_a_service_are_told_as_percentiles() -> None:
    taken = {0: 0.1, 1: 0.2, 2: 0.3, 3: 5.0}

    def served(sample: Sample) -> SampleScore:
        parts = {"judge": 1.0, "judge.latency_s": taken[sample.index]}
        return SampleScore(prompt=sample.prompt, index=sample.index, reward=sample.index * 0.5, components=parts)

    (step,) = bodies(finished(job(num_global_steps=1), scorer=served), StepRecord)
    assert step.components["judge.latency_s"] == pytest.approx(1.4)
    assert (step.components["judge.latency_p50_s"], step.components["judge.latency_p95_s"]) == (0.2, 5.0)
    assert set(step.component_stds) == {"judge", "judge.latency_s"}
