"""Where the time went: seconds of every worker by stage, summing to wall time x workers.

Owns the accounting and the names of its stages. Knows no clock and no files. Invariant: O(1) memory a
record; a worker's row covers exactly the job's wall time, and what no record explains is named `other`,
never spread over the rest.

The window runs from the job's first `preparing` or `running` to its end, or to the newest record while it
runs. A worker that was lost or not there yet is `absent`; one of which the job asked nothing has no row. The
names: a receipt's own stages (with `assist_` before them where the trainer generated; `update_gather` is what the ranks
of a trainer exchange for an update, `gather` what is gathered to be published, mostly; `measure` TSP widths are tried),
`switch`, `load`, `evaluate`,
`checkpoint`, `dispatch` (what the driver and the wire took on top of the receipt), `follows TASK`, `idle: CAUSE`,
`bubble: CAUSE`, `absent`, `other`.

`switch` is a trainer's change between training and generating: what its receipts name so (offload, load, restore), and
what updates after TAG take longer than others, by the estimate that the core plans with. Versions are staged while
tasks run: that is told beside the table, because a second of it is one of the table's too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from digend.wire.records import IdleRecord, JobState, Record, StagingRecord, TaskRecord, WorkerState
from digend.wire.tasks import SWITCH_STAGES

OTHER = "other"
SWITCH = "switch"
ABSENT = "absent"
GATHER, UPDATE_GATHER = "gather", "update_gather"
FINAL_STATES = ("completed", "failed", "cancelled")

WORKER_ROLES = ("generator", "trainer", "reward")
_WHOLE_TASKS = {
    "prepare": "load",
    "evaluate": "evaluate",
    "evaluate_score": "evaluate",
    "checkpoint": "checkpoint",
}

_OWN_STAGES = {
    "encode": "encode",
    "generate": "generate",
    "assist": "assist_generate",
    "score": "score",
    "update": "update",
    "reset": "update",
    "commit": "optimizer",
}
"""What a worker was at while its receipt names no stage: the task itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """`seconds[worker][stage]`; each row sums to `wall_s` unless records overlap. Shares are of wall time x
    workers.
    """

    seconds: dict[str, dict[str, float]]
    wall_s: float
    unaccounted_share: float
    bubble_share: float
    staging_s: dict[str, float] = field(default_factory=dict)
    """By worker: of its seconds those in which it staged a policy version in the background."""


def task_stages(record: TaskRecord) -> list[tuple[str, int]]:
    """(stage, nanoseconds) of one finished task; they sum to its interval on the driver's clock."""
    interval = max(record.end_ns - record.start_ns, 0)
    busy = min(record.receipt.total_ns, interval)
    whole = _WHOLE_TASKS.get(record.task)
    parts = [(whole, busy)] if whole is not None else _receipt_stages(record, busy)
    return [(stage, ns) for stage, ns in (*parts, ("dispatch", interval - busy)) if ns > 0]


def _receipt_stages(record: TaskRecord, busy: int) -> list[tuple[str, int]]:
    prefix = "assist_" if record.task == "assist" else ""
    told = dict(record.receipt.stages)
    named = sum(told.get(stage, 0) for stage in SWITCH_STAGES)
    switch = min(max(record.switch_ns - named, 0), told.get(record.task, max(busy - named, 0)))
    found = [(SWITCH, switch)]
    left = busy - switch
    for stage, duration in told.items():
        counted = min(duration - (switch if stage == record.task else 0), left)
        left -= counted
        name = UPDATE_GATHER if (record.task, stage) == ("update", GATHER) else prefix + stage
        found.append((SWITCH if stage in SWITCH_STAGES else name, counted))
    found.append((_OWN_STAGES.get(record.task, OTHER), left))
    return found


FOLLOWS = "follows "
"""How the cause of an idle time begins that is none: another rank of the trainer does what rank 0 is leased."""


def followed(cause: str) -> str:
    """The stage of what a rank follows rank 0 in; "" where it idles."""
    if not cause.startswith(FOLLOWS) or cause == FOLLOWS:
        return ""
    task = cause.removeprefix(FOLLOWS)
    return _WHOLE_TASKS.get(task) or _OWN_STAGES.get(task, OTHER)


def idle_stage(record: IdleRecord) -> str:
    """`idle: CAUSE`, `bubble: CAUSE`, or `follows TASK`."""
    if followed(record.cause):
        return record.cause
    return f"{'bubble' if record.bubble else 'idle'}: {record.cause}"


class StageLedger:
    """Adds up one job's records, in order."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, int]] = {}
        self._absent_since: dict[str, int | None] = {}
        self._absent_ns: dict[str, int] = {}
        self._staging_ns: dict[str, int] = {}
        self._start_ns: int | None = None
        self._end_ns: int | None = None
        self._last_ns = 0

    def add(self, record: Record) -> None:
        body = record.body
        if self._end_ns is None:
            self._last_ns = max(self._last_ns, record.at_ns)
        if isinstance(body, JobState):
            self._add_state(record.at_ns, body.state)
        elif isinstance(body, WorkerState):
            self._add_presence(record.at_ns, body)
        elif isinstance(body, IdleRecord):
            self._count(body.worker, body.start_ns, body.end_ns, ((idle_stage(body), body.end_ns - body.start_ns),))
        elif isinstance(body, TaskRecord):
            self._count(body.worker, body.start_ns, body.end_ns, task_stages(body))
        elif isinstance(body, StagingRecord):
            inside = self._clipped(body.start_ns, body.end_ns)
            self._staging_ns[body.worker] = self._staging_ns.get(body.worker, 0) + inside

    def table(self) -> StageTable:
        """What the records so far say; before the job started an empty table."""
        start = self._start_ns
        if start is None:
            return StageTable(seconds={}, wall_s=0.0, unaccounted_share=0.0, bubble_share=0.0)
        wall = max((self._end_ns or self._last_ns) - start, 0)
        rows = {worker: self._full_row(worker, start + wall) for worker in sorted(self._rows)}
        wrong = 0
        for row in rows.values():
            left = wall - sum(row.values())
            wrong += abs(left + row.get(OTHER, 0))
            row[OTHER] = row.get(OTHER, 0) + max(left, 0)
        total = wall * len(rows)
        bubbles = sum(duration for row in rows.values() for name, duration in row.items() if name.startswith("bubble"))
        return StageTable(
            seconds={worker: _in_seconds(row) for worker, row in rows.items()},
            wall_s=wall / 1e9,
            unaccounted_share=wrong / total if total else 0.0,
            bubble_share=bubbles / total if total else 0.0,
            staging_s={worker: ns / 1e9 for worker, ns in sorted(self._staging_ns.items()) if worker in rows},
        )

    def _add_state(self, at_ns: int, state: str) -> None:
        if self._start_ns is None and state in ("preparing", "running"):
            self._start_ns = at_ns
        if self._end_ns is None and state in FINAL_STATES:
            self._end_ns = at_ns

    def _add_presence(self, at_ns: int, body: WorkerState) -> None:
        if body.role not in WORKER_ROLES:
            return
        known = body.worker in self._rows or body.worker in self._absent_since
        since = self._absent_since.get(body.worker, self._start_ns if not known and body.state == "joined" else None)
        if body.state in ("lost", "left"):
            self._absent_since[body.worker] = at_ns if since is None else since
        elif body.state in ("joined", "healed"):
            if since is not None:
                self._absent_ns[body.worker] = self._absent_ns.get(body.worker, 0) + self._clipped(since, at_ns)
            self._absent_since[body.worker] = None

    def _count(self, worker: str, start_ns: int, end_ns: int, parts: Iterable[tuple[str, int]]) -> None:
        row = self._rows.setdefault(worker, {})
        inside = self._clipped(start_ns, end_ns)
        if inside <= 0:
            return
        if self._end_ns is None:
            self._last_ns = max(self._last_ns, end_ns)
        share = inside / (end_ns - start_ns)
        for stage, duration in parts:
            if duration > 0:
                row[stage] = row.get(stage, 0) + round(duration * share)

    def _clipped(self, start_ns: int, end_ns: int) -> int:
        if self._start_ns is None:
            return 0
        end = end_ns if self._end_ns is None else min(end_ns, self._end_ns)
        return max(end - max(start_ns, self._start_ns), 0)

    def _full_row(self, worker: str, end_ns: int) -> dict[str, int]:
        since = self._absent_since.get(worker)
        absent = self._absent_ns.get(worker, 0) + (0 if since is None else self._clipped(since, end_ns))
        return self._rows[worker] | ({ABSENT: absent} if absent else {})


def stage_table(records: Iterable[Record]) -> StageTable:
    """The table of a finished stream of records of one job."""
    ledger = StageLedger()
    for record in records:
        ledger.add(record)
    return ledger.table()


def _in_seconds(row: dict[str, int]) -> dict[str, float]:
    return {stage: row[stage] / 1e9 for stage in sorted(row) if row[stage] > 0}
