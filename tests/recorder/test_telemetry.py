"""Stage accounting, timeline and summary: pure functions of a job's records."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.telemetry.stages import StageLedger, stage_table, task_stages
from digend.telemetry.summary import COUNTERS, MAX_EVALUATIONS, Summary, summarise
from digend.telemetry.timeline import KINDS, Timeline, task_spans
from digend.wire.records import (
    EvaluationRecord,
    IdleRecord,
    JobState,
    Notice,
    Record,
    RecordBody,
    RestartRecord,
    StepRecord,
    TaskRecord,
    WorkerState,
)
from digend.wire.tasks import Receipt
from tests.recorder.plausible import GENERATORS, TRAINER, plausible_run

RECORDS = plausible_run()
S = 1_000_000_000


def stream(*bodies: tuple[float, RecordBody]) -> list[Record]:
    return [Record(job="j", seq=seq, at_ns=int(at * S), body=body) for seq, (at, body) in enumerate(bodies)]


def task(
    worker: str, name: str, start: float, end: float, total: float, *stages: tuple[str, float]
) -> tuple[float, TaskRecord]:
    receipt = Receipt(total_ns=int(total * S), stages=tuple((stage, int(value * S)) for stage, value in stages))
    body = TaskRecord(
        worker=worker, task=name, lease="1.1", start_ns=int(start * S), end_ns=int(end * S), receipt=receipt
    )
    return end, body


def idle(worker: str, start: float, end: float, cause: str, *, bubble: bool = False) -> tuple[float, IdleRecord]:
    return end, IdleRecord(worker=worker, start_ns=int(start * S), end_ns=int(end * S), cause=cause, bubble=bubble)


def test_stages_of_a_run_sum_to_wall_time_times_workers() -> None:
    table = stage_table(RECORDS)
    assert set(table.seconds) == {*GENERATORS, TRAINER}
    for row in table.seconds.values():
        assert sum(row.values()) == pytest.approx(table.wall_s, rel=1e-6)
    assert table.unaccounted_share < 1e-6
    assert 0.1 < table.bubble_share < 0.4


def test_what_no_record_explains_is_named_and_counted() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="running")),
            task("w", "generate", 0, 4, 3, ("generate", 2), ("decode", 0.5)),
            idle("w", 5, 8, "no work"),
            (10, JobState(state="completed")),
        )
    )
    assert table.seconds == {"w": {"decode": 0.5, "dispatch": 1.0, "generate": 2.5, "idle: no work": 3.0, "other": 3.0}}
    assert table.unaccounted_share == pytest.approx(0.3)


def test_names_of_stages() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="preparing")),
            task("t", "prepare", 0, 1, 1, ("load", 0.9), ("publish", 0.1)),
            task("t", "assist", 1, 2, 1, ("generate", 0.8), ("decode", 0.2)),
            task("t", "evaluate", 2, 3, 1, ("generate", 1)),
            task("t", "evaluate_score", 3, 4, 1, ("score", 1)),
            task("t", "checkpoint", 4, 5, 1, ("checkpoint", 0.4)),
            task("t", "commit", 5, 6, 1, ("optimizer", 0.25), ("publish", 0.75)),
            idle("t", 6, 7, "no scored micro-batch", bubble=True),
            (7, JobState(state="completed")),
        )
    )
    assert table.seconds["t"] == {
        "load": 1.0,
        "assist_generate": 0.8,
        "assist_decode": 0.2,
        "evaluate": 2.0,
        "checkpoint": 1.0,
        "optimizer": 0.25,
        "publish": 0.75,
        "bubble: no scored micro-batch": 1.0,
    }
    assert table.unaccounted_share == 0
    assert table.bubble_share == pytest.approx(1 / 7)


def test_only_time_inside_the_job_counts() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="queued")),
            idle("w", 0, 2, "before"),
            (10, JobState(state="running")),
            idle("w", 8, 12, "across"),
            (14, JobState(state="completed")),
            idle("w", 12, 30, "after"),
        )
    )
    assert table.wall_s == 4
    assert table.seconds == {"w": {"idle: across": 2.0, "idle: after": 2.0}}


def test_a_worker_that_comes_late_or_goes_is_absent() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="running")),
            idle("a", 0, 4, "x"),
            (3, WorkerState(worker="late", role="generator", state="joined")),
            (4, WorkerState(worker="a", role="generator", state="lost")),
            (7, WorkerState(worker="a", role="generator", state="joined")),
            (8, WorkerState(worker="r", role="recorder", state="joined")),
            idle("a", 7, 9, "x"),
            idle("late", 3, 10, "x"),
            (9, WorkerState(worker="a", role="generator", state="left")),
            (10, JobState(state="completed")),
        )
    )
    assert table.seconds == {"a": {"absent": 4.0, "idle: x": 6.0}, "late": {"absent": 3.0, "idle: x": 7.0}}
    assert table.unaccounted_share == 0


def test_a_worker_of_which_nothing_was_asked_has_no_row_and_a_new_driver_makes_nobody_absent() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="running")),
            (3, WorkerState(worker="w", role="generator", state="healed", reason="came back with its work")),
            (4, WorkerState(worker="reward", role="reward", state="lost")),
            (6, WorkerState(worker="reward", role="reward", state="joined")),
            idle("w", 0, 10, "x"),
            (10, JobState(state="completed")),
        )
    )
    assert table.seconds == {"w": {"idle: x": 10.0}}


def test_records_that_overlap_do_not_hide() -> None:
    table = stage_table(
        stream(
            (0, JobState(state="running")),
            idle("w", 0, 10, "x"),
            idle("w", 0, 5, "y"),
            (10, JobState(state="completed")),
        )
    )
    assert table.unaccounted_share == pytest.approx(0.5)


def test_before_the_start_there_is_nothing() -> None:
    table = stage_table(stream((0, JobState(state="queued")), idle("w", 0, 1, "x")))
    assert (table.seconds, table.wall_s, table.unaccounted_share) == ({}, 0.0, 0.0)


@given(
    start=st.integers(0, 10**6),
    length=st.integers(0, 10**6),
    total=st.integers(0, 2 * 10**6),
    stages=st.lists(st.tuples(st.sampled_from(["generate", "decode", "fetch"]), st.integers(0, 10**6)), max_size=5),
    name=st.sampled_from(["generate", "assist", "evaluate", "commit", "checkpoint", "prepare"]),
)
def test_stages_of_a_task_sum_to_its_interval_and_spans_stay_inside(
    start: int, length: int, total: int, stages: list[tuple[str, int]], name: str
) -> None:
    record = TaskRecord(
        worker="w",
        task=name,
        lease="1",
        start_ns=start,
        end_ns=start + length,
        receipt=Receipt(total_ns=total, stages=tuple(stages)),
    )
    assert sum(duration for _, duration in task_stages(record)) == length
    spans = task_spans(record)
    assert all(start <= span.start_ns < span.end_ns <= start + length for span in spans)
    assert all(left.end_ns == right.start_ns for left, right in pairwise(spans))
    assert {span.kind for span in spans} <= set(KINDS)


def test_the_summary_is_the_same_one_by_one_and_at_once() -> None:
    summary = Summary(name="shapes", num_global_steps=22)
    for number, record in enumerate(RECORDS, start=1):
        summary.add(record)
        if number % 50 == 0 or number == len(RECORDS):
            assert summary.detail() == summarise(RECORDS[:number], name="shapes", num_global_steps=22)


def test_the_summary_of_a_run() -> None:
    detail = summarise(RECORDS, name="shapes", num_global_steps=22)
    job = detail.job
    assert (job.id, job.name, job.state, job.global_step, job.policy_version) == (
        "shapes-1",
        "shapes",
        "completed",
        22,
        22,
    )
    assert job.incarnation == 1
    assert job.submitted_ns == RECORDS[0].at_ns
    assert job.finished_ns == RECORDS[-1].at_ns
    assert detail.seconds == pytest.approx((RECORDS[-1].at_ns - RECORDS[1].at_ns) / S)
    assert [view.label for view in detail.evaluations] == ["before", *["during"] * 4, "after"]
    assert detail.pipeline == "checkpoints/final/pipeline"
    assert detail.counters["restarts"] == detail.counters["failed_tasks"] == detail.counters["lost_workers"] == 1
    assert detail.counters["masked_samples"] == detail.counters["skipped_steps"] == 1
    assert set(COUNTERS) <= detail.counters.keys()
    assert detail.num_records == len(RECORDS)
    assert detail.stage_seconds == stage_table(RECORDS).seconds


def test_a_restart_takes_the_global_step_back() -> None:
    detail = summarise(
        stream(
            (0, JobState(state="running")),
            (1, _step(1)),
            (2, _step(2)),
            (3, RestartRecord(incarnation=1, global_step=1, reason="lost")),
            (3, Notice(level="info", message="x", details={"count": "discarded_micro_batches"})),
        )
    )
    assert (detail.job.global_step, detail.job.incarnation) == (1, 1)
    assert detail.counters["discarded_micro_batches"] == 1
    assert detail.counters["warnings"] == 0


def test_the_view_stays_small_however_many_evaluations() -> None:
    evaluation = next(record.body for record in RECORDS if isinstance(record.body, EvaluationRecord))
    many = [(float(at), dataclasses.replace(evaluation, global_step=at)) for at in range(500)]
    detail = summarise(stream(*many))
    assert len(detail.evaluations) == MAX_EVALUATIONS
    assert (detail.evaluations[0].global_step, detail.evaluations[-1].global_step) == (0, 499)


def test_the_timeline_keeps_the_newest_spans() -> None:
    timeline, everything = Timeline(limit=100), Timeline()
    for record in RECORDS:
        timeline.add(record)
        everything.add(record)
    assert len(timeline.spans) == 100
    assert timeline.num_dropped == len(everything.spans) - 100
    assert timeline.spans == everything.spans[-100:]
    assert everything.num_dropped == 0
    assert {"step", "evaluation", "restart", "state"} == {mark.kind for mark in everything.marks}


def test_ledger_rows_do_not_grow_with_records() -> None:
    ledger = StageLedger()
    for record in stream((0, JobState(state="running")), *[idle("w", at, at + 1, "x") for at in range(1000)]):
        ledger.add(record)
    assert ledger.table().seconds == {"w": {"idle: x": 1000.0}}


def _step(number: int) -> StepRecord:
    step = next(record.body for record in RECORDS if isinstance(record.body, StepRecord))
    return dataclasses.replace(step, global_step=number, version=number, incarnation=0)
