"""One job in one view: what `digenctl show job` and `runs/ID/summary.json` say.

Owns the reading of a record stream into a `JobDetail`. Knows no files and no clock. Invariant: O(1) memory
a record, and adding records one by one gives the same view as adding them all at once, so that driver and
recorder agree.
"""

import math
from collections import Counter
from collections.abc import Iterable

from digend.telemetry.figures import figures
from digend.telemetry.stages import FINAL_STATES, WORKER_ROLES, StageLedger, StageTable
from digend.wire.records import (
    CheckpointRecord,
    Decision,
    EvaluationRecord,
    JobState,
    Notice,
    OriginRecord,
    Record,
    RestartRecord,
    StepRecord,
    TaskFailure,
    TaskRecord,
    WorkerState,
)
from digend.wire.views import EvaluationView, JobDetail, JobView

MAX_EVALUATIONS = 200
"""Evaluations kept in the view: the first and the newest; the rest are in metrics.jsonl."""


class Summary:
    """Reads one job's records in order. Name and number of global steps come from the job file, not from
    records.
    """

    def __init__(self, *, name: str = "", num_global_steps: int = 0) -> None:
        self._name = name
        self._num_global_steps = num_global_steps
        self._job = ""
        self._state = JobState(state="queued")
        self._submitted_ns = 0
        self._started_ns: int | None = None
        self._finished_ns: int | None = None
        self._last_ns = 0
        self._global_step = 0
        self._version = 0
        self._incarnation = 0
        self._parent, self._parent_step = "", 0
        self._last_step: dict[str, float] = {}
        self._reward: float | None = None
        self._last_evaluation: dict[str, float] = {}
        self._evaluations: list[EvaluationView] = []
        self._checkpoint: CheckpointRecord | None = None
        self._pipeline: str | None = None
        self._counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._ledger = StageLedger()
        self._num_records = 0

    def add(self, record: Record) -> None:
        if self._num_records == 0:
            self._job, self._submitted_ns = record.job, record.at_ns
        self._num_records += 1
        self._last_ns = max(self._last_ns, record.at_ns)
        self._ledger.add(record)
        for counter, by in counted(record).items():
            self._counters[counter] += by
        self._take(record)

    def detail(self) -> JobDetail:
        """The view of everything added so far."""
        table = self._ledger.table()
        started = self._started_ns
        end = self._finished_ns or self._last_ns
        return JobDetail(
            job=self._view(),
            seconds=(end - started) / 1e9 if started is not None else 0.0,
            evaluations=tuple(self._evaluations),
            last_step=dict(self._last_step),
            stage_seconds=table.seconds,
            staging_seconds=table.staging_s,
            counters=dict(sorted(self._counters.items())),
            checkpoint=self._checkpoint.path if self._checkpoint else None,
            pipeline=self._pipeline,
            num_records=self._num_records,
        )

    @property
    def figures(self) -> dict[str, float]:
        """Of the newest global step and the newest evaluation."""
        return self._last_step | self._last_evaluation

    def stage_table(self) -> StageTable:
        """The same seconds as in the view, with wall time and shares."""
        return self._ledger.table()

    def _view(self) -> JobView:
        return JobView(
            id=self._job,
            name=self._name or self._job,
            state=self._state.state,
            reason=self._state.reason,
            global_step=self._global_step,
            num_global_steps=self._num_global_steps,
            policy_version=self._version,
            incarnation=self._incarnation,
            reward=self._reward,
            submitted_ns=self._submitted_ns,
            started_ns=self._started_ns,
            finished_ns=self._finished_ns,
            user=self._state.user,
            priority=self._state.priority,
            parent=self._parent,
            parent_step=self._parent_step,
        )

    def _take(self, record: Record) -> None:
        body = record.body
        if isinstance(body, JobState):
            self._take_state(record.at_ns, body)
        elif isinstance(body, OriginRecord):
            self._parent, self._parent_step = body.parent, body.global_step
            self._global_step, self._version = body.global_step, body.version
        elif isinstance(body, StepRecord):
            self._global_step, self._version = body.global_step, body.version
            self._incarnation = body.incarnation
            self._last_step = figures(body)
            self._reward = self._reward if body.reward_mean is None else _finite(body.reward_mean)
        elif isinstance(body, EvaluationRecord):
            self._take_evaluation(body)
        elif isinstance(body, CheckpointRecord):
            self._checkpoint = body
            self._pipeline = body.pipeline or self._pipeline
        elif isinstance(body, RestartRecord):
            self._global_step, self._incarnation = body.global_step, body.incarnation

    def _take_state(self, at_ns: int, state: JobState) -> None:
        self._state = state
        if self._started_ns is None and state.state in ("preparing", "running"):
            self._started_ns = at_ns
        if state.state in FINAL_STATES:
            self._finished_ns = at_ns

    def _take_evaluation(self, body: EvaluationRecord) -> None:
        view = EvaluationView(
            label=body.label, global_step=body.global_step, version=body.version, metrics=dict(body.metrics)
        )
        self._last_evaluation = figures(body)
        self._evaluations.append(view)
        if len(self._evaluations) > MAX_EVALUATIONS:
            del self._evaluations[1]


COUNTERS = (
    "assisted_micro_batches",
    "discarded_micro_batches",
    "dropped_groups",
    "failed_tasks",
    "global_steps",
    "lost_workers",
    "masked_samples",
    "restarts",
    "samples",
    "skipped_steps",
    "stale_micro_batches",
    "strategy_decisions",
    "tasks",
    "warnings",
    "zero_std_groups",
)
"""Always present, 0 where nothing happened. A notice may add its own: `details = {"count": NAME}`."""

_SIMPLE: dict[type, str] = {
    TaskRecord: "tasks",
    TaskFailure: "failed_tasks",
    RestartRecord: "restarts",
    Decision: "strategy_decisions",
}


def counted(record: Record) -> dict[str, int]:
    """What one record adds to the counters."""
    body = record.body
    if isinstance(body, StepRecord):
        return {
            "global_steps": 1,
            "samples": body.num_samples,
            "masked_samples": body.num_masked,
            "dropped_groups": body.num_dropped_groups,
            "zero_std_groups": body.num_zero_std_groups,
            "skipped_steps": int(body.skipped is not None),
            "stale_micro_batches": body.stale_micro_batches,
            "assisted_micro_batches": body.assisted_micro_batches,
        }
    if isinstance(body, Notice):
        return _counted_notice(body)
    if isinstance(body, WorkerState):
        return {"lost_workers": int(body.state == "lost" and body.role in WORKER_ROLES)}
    name = _SIMPLE.get(type(body))
    return {name: 1} if name else {}


def summarise(records: Iterable[Record], *, name: str = "", num_global_steps: int = 0) -> JobDetail:
    """The view of a whole stream."""
    summary = Summary(name=name, num_global_steps=num_global_steps)
    for record in records:
        summary.add(record)
    return summary.detail()


def _counted_notice(notice: Notice) -> dict[str, int]:
    counts = {"warnings": int(notice.level in ("warning", "error"))}
    if "count" in notice.details:
        counts[notice.details["count"]] = 1
    return counts


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
