"""What the driver logs about a job."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from daemons.driver.diary import enter
from digend.telemetry import logs
from digend.wire.records import (
    CheckpointRecord,
    IdleRecord,
    JobState,
    Notice,
    Record,
    RecordBody,
    TaskFailure,
    TaskRecord,
)
from digend.wire.tasks import Receipt


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    made = io.StringIO()
    logs.set_up("json", "debug", "box/driver", made)
    yield made
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def entered(stream: io.StringIO, body: RecordBody) -> dict[str, Any]:
    """The line of a record; nothing where it has none."""
    enter(Record(job="j1", seq=0, at_ns=0, body=body))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    kept = {key: value for key, value in (lines[-1] if lines else {}).items() if key not in ("timestamp", "process")}
    assert kept.pop("job", "j1") == "j1"
    return kept


def test_states_are_told_with_their_reason_if_there_is_one(stream: io.StringIO) -> None:
    assert entered(stream, JobState(state="running")) == {"event": "job running", "level": "info"}
    failed = entered(stream, JobState(state="failed", reason="loss is not finite"))
    assert failed == {"event": "job failed", "level": "info", "reason": "loss is not finite"}


def test_tasks_have_their_micro_batch_and_version(stream: io.StringIO) -> None:
    receipt = Receipt(total_ns=0, stages=())
    task = TaskRecord(worker="box/trainer/0", task="update", lease="1.1", start_ns=0, end_ns=10**9, receipt=receipt)
    told = {"event": "task done", "level": "debug", "worker": "box/trainer/0", "task": "update", "seconds": 1.0}
    assert entered(stream, task) == told
    failure = TaskFailure(worker="box/trainer/0", task="update", reason="oom", message="too large", micro_batch=0)
    told = {"event": "task failed", "level": "warning", "worker": "box/trainer/0", "task": "update", "micro_batch": 0}
    assert entered(stream, failure) == {**told, "reason": "oom", "error": "too large"}


def test_checkpoints_and_notices(stream: io.StringIO) -> None:
    checkpoint = CheckpointRecord(global_step=4, version=4, incarnation=0, path="/c", digest="d", pipeline=None)
    assert entered(stream, checkpoint) == {"event": "checkpoint", "level": "info", "policy_version": 4, "path": "/c"}
    assert entered(stream, Notice(level="error", message="broken"))["level"] == "warning"
    assert entered(stream, Notice(level="info", message="fine"))["level"] == "info"


def test_what_only_the_report_needs_has_no_line(stream: io.StringIO) -> None:
    idle = IdleRecord(worker="box/trainer/0", start_ns=0, end_ns=1, cause="waits", bubble=True)
    assert entered(stream, idle) == {}
