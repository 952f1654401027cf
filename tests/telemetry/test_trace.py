"""Traces for Perfetto: valid as the format has it, and true to the records."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digend.telemetry.timeline import Timeline
from digend.telemetry.trace import events_of, write_trace
from digend.wire.records import IdleRecord, Record, StagingRecord, TaskRecord
from tests.broker.support import MS, TIMES, S, finished, job
from tests.recorder.plausible import plausible_run
from tests.telemetry.test_explain import ran
from tests.telemetry.trace_format import check_trace


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Of a job on dedicated rewards, with TAG, from the core itself."""
    return ran("planned", num_rewards=1, steps=3).records["j1"]


def events(records: Sequence[Record]) -> list[Any]:
    timeline = Timeline(limit=None)
    for record in records:
        timeline.add(record)
    return list(events_of(timeline))


def test_traces_are_valid(records: list[Record]) -> None:
    check_trace(events(records))
    check_trace(events(plausible_run()))
    check_trace(events(records[:1]))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: {**event, "dur": 1e12} if event.get("cat") == "task" else event,
        lambda event: {**event, "tid": 99} if event["ph"] == "X" else event,
        lambda event: {**event, "ts": 0.0} if event["ph"] == "f" else event,
        lambda event: {key: value for key, value in event.items() if key != "args"},
    ],
)
def test_the_check_finds_what_is_wrong(records: list[Record], spoil: Any) -> None:
    with pytest.raises(AssertionError):
        check_trace(map(spoil, events(records)))


def test_slices_are_the_tasks_and_bubbles_of_the_records(records: list[Record]) -> None:
    told = events(records)
    tasks = [record.body for record in records if isinstance(record.body, TaskRecord) and record.body.receipt.total_ns]
    slices = [event for event in told if event.get("cat") == "task"]
    assert len(slices) == len(tasks)
    assert sum(event["dur"] for event in slices) == pytest.approx(
        sum(task.end_ns - task.start_ns for task in tasks) / 1e3
    )
    bubbles = [record.body for record in records if isinstance(record.body, IdleRecord) and record.body.bubble]
    drawn = [event for event in told if event.get("cat") == "bubble"]
    assert sorted(event["args"]["cause"] for event in drawn) == sorted(bubble.cause for bubble in bubbles)
    assert {"TAG: generate"} <= {event["name"] for event in told if event.get("cat") == "assist"}


def test_a_node_is_a_process_and_a_worker_a_thread_of_it(records: list[Record]) -> None:
    told = events(records)
    names = {event["args"]["name"] for event in told if event["name"] == "process_name"}
    assert "job j1" in names
    workers = {record.body.worker for record in records if isinstance(record.body, TaskRecord)}
    threads = {event["args"]["name"] for event in told if event["name"] == "thread_name" and event["pid"] > 1}
    short = {"/".join(worker.split("/")[1:]) for worker in workers}
    assert short == {thread for thread in threads if "(staging" not in thread}
    assert {thread.partition(" (staging")[0] for thread in threads} == short
    assert names - {"job j1"} == {f"node {worker.split('/')[0]}" for worker in workers}


def test_a_switch_of_the_trainers_mode_is_told_where_it_was() -> None:
    times = replace(TIMES, switch=40 * MS)
    records = finished(job(strategy="always", num_global_steps=3), times=times).records["j1"]
    told = events(records)
    switched = [record.body for record in records if isinstance(record.body, TaskRecord) and record.body.switched]
    marks = [event["name"] for event in told if event.get("cat") == "switch" and event["ph"] == "i"]
    assert [{"update": "switch to training"}.get(task.task, "switch to generating") for task in switched] == marks
    assert {"switch to training", "switch to generating"} == set(marks), "there was TAG, and an update after it"
    slices = [event for event in told if event.get("cat") == "switch" and event["ph"] == "X"]
    assert {event["dur"] for event in slices} == {40_000.0}, "what the simulated trainer takes"


def test_staging_is_a_thread_of_its_own_beside_the_tasks(records: list[Record]) -> None:
    told = events(records)
    staged = [record.body for record in records if isinstance(record.body, StagingRecord)]
    drawn = [event for event in told if event.get("cat") == "stage"]
    assert len(staged) == len(drawn) >= 3, "each version that a generator worked with"
    assert [event["dur"] for event in drawn] == [(each.end_ns - each.start_ns) / 1e3 for each in staged]
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in told if event["name"] == "thread_name"}
    assert {threads[event["pid"], event["tid"]] for event in drawn} == {"generator/0 (staging)"}


def test_versions_that_overlap_are_staged_on_threads_of_their_own() -> None:
    bodies = [
        StagingRecord(worker="n/generator/0", incarnation=0, version=v, start_ns=v * S, end_ns=(v + 2) * S, num_bytes=1)
        for v in range(4)
    ]
    told = events([Record(job="j", seq=at, at_ns=body.end_ns, body=body) for at, body in enumerate(bodies)])
    check_trace(told)
    names = {event["args"]["name"] for event in told if event["name"] == "thread_name"}
    assert names == {"generator/0 (staging)", "generator/0 (staging 2)"}


def test_pauses_and_global_steps_are_told_by_name() -> None:
    told = events(plausible_run(num_steps=10, every=5))
    by_kind = {
        kind: [event["name"] for event in told if event.get("cat") == kind and event["ph"] == "X"]
        for kind in ("step", "evaluation", "checkpoint")
    }
    assert "global step 7" in by_kind["step"]
    assert "evaluation before" in by_kind["evaluation"]
    assert "checkpoint" in by_kind["checkpoint"]
    rewards = [event["args"]["mean"] for event in told if event["ph"] == "C"]
    assert len(rewards) == len(by_kind["step"])


def test_arrows_lead_from_generate_over_score_to_update(records: list[Record]) -> None:
    told = events(records)
    arrows: dict[int, list[Any]] = {}
    for event in told:
        if event["ph"] in ("s", "t", "f"):
            arrows.setdefault(event["id"], []).append(event)
    tasks = [event for event in told if event.get("cat") == "task"]

    def task_at(point: Any) -> str:
        found = [
            task["name"]
            for task in tasks
            if (task["pid"], task["tid"]) == (point["pid"], point["tid"])
            and task["ts"] <= point["ts"] <= task["ts"] + task["dur"]
        ]
        return str(found[-1])

    num_generated = sum(task["name"].split()[0] in ("generate", "assist") for task in tasks)
    assert len(arrows) == num_generated
    for points in arrows.values():
        names = [task_at(point).split() for point in points]
        assert [name[0] for name in names] in (["generate", "score", "update"], ["assist", "score", "update"])
        assert len({name[1] for name in names}) == 1, "one micro-batch"


def test_a_file_is_one_document(records: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    told = events(records)
    write_trace(path, told)
    assert json.loads(path.read_text()) == {"displayTimeUnit": "ms", "traceEvents": told}
    write_trace(path, [])
    assert json.loads(path.read_text())["traceEvents"] == []
