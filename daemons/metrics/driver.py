"""What the driver shows: its loop, journal and core, queues, leases, workers, and the figures of the running job.

Owns the translation of views, records and durations into metrics. Decides nothing. Invariant: labels are of closed sets
(`families`), also where records name something newer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from broker.commands import Command, Write
from broker.state import Lease
from daemons.metrics.board import Board
from daemons.metrics.families import DRIVER, OTHER, ROLES, TASKS, WORKER_STATES
from digend.telemetry.figures import BUBBLE_CAUSES, FIGURES, figures
from digend.telemetry.stages import followed, task_stages
from digend.telemetry.timeline import STAGE_KINDS
from digend.wire.records import Decision, EvaluationRecord, IdleRecord, Record, StepRecord, TaskFailure, TaskRecord
from digend.wire.views import StatusView

TICK_S, TICKS_A_LOOK = 0.25, 4
MAX_FIGURES = 128
"""Figures of one job: a reward with hundreds of components does not become hundreds of series."""

_STAGES = {*STAGE_KINDS, "dispatch", "idle", "bubble", *(f"assist_{stage}" for stage in STAGE_KINDS)}


class DriverMetrics:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self.board = Board(DRIVER)
        self._figures: dict[str, float] = {}
        self._job = ""

    def begin_with(self, job: str, values: dict[str, float]) -> None:
        """Figures from before this process began; counters begin at 0, as Prometheus expects of a restart."""
        self._job, self._figures = job, dict(values)
        self._show_figures()

    async def watch(
        self, look: Callable[[], StatusView], leases: Callable[[], Iterable[Lease]], waiting: Callable[[], int]
    ) -> None:
        """For ever: the loop's lag four times a second, the gauges once a second."""
        loop = asyncio.get_running_loop()
        while True:
            self.status(look())
            self._count_leases(leases())
            self.board.set("digend_bytes_waiting", waiting())
            for _ in range(TICKS_A_LOOK):
                due = loop.time() + TICK_S
                await asyncio.sleep(TICK_S)
                self.board.observe("digend_event_loop_lag_seconds", max(0.0, loop.time() - due))

    def stepped(self, seconds: float, commands: Iterable[Command]) -> None:
        """A turn of the core, and what it came to."""
        self.board.observe("digend_step_seconds", seconds)
        states = sum(_states(command) for command in commands)
        if states:
            self.board.observe("digend_search_seconds", seconds)
            self.board.add("digend_search_states", states)

    def committed(self, seconds: float) -> None:
        self.board.observe("digend_journal_commit_seconds", seconds)

    def record(self, record: Record) -> None:
        body = record.body
        if isinstance(body, TaskRecord):
            self.board.add("digend_tasks", 1, task=_one_of(body.task, TASKS))
            for stage, ns in task_stages(body):
                self.board.add(
                    "digend_worker_seconds", ns / 1e9, role=_role(body.worker), stage=_one_of(stage, _STAGES)
                )
        elif isinstance(body, TaskFailure):
            self.board.add("digend_task_failures", 1, task=_one_of(body.task, TASKS))
        elif isinstance(body, IdleRecord):
            self._idle(body)
        elif isinstance(body, StepRecord | EvaluationRecord):
            self._take_figures(record.job, figures(body))

    def status(self, status: StatusView) -> None:
        board = self.board
        ages: dict[tuple[str, ...], float | None] = {}
        for queue, depth, oldest in (
            ("sq", status.sq_depth, status.sq_oldest_s),
            ("uq", status.uq_depth, status.uq_oldest_s),
            ("jobs", status.queued, None),
        ):
            board.set("digend_queue_depth", depth, queue=queue)
            ages[queue,] = oldest
        board.replace("digend_queue_oldest_seconds", {key: age for key, age in ages.items() if age is not None})
        board.set("digend_queue_bytes", status.sq_bytes, queue="sq")
        board.set("digend_queue_bytes", status.uq_bytes, queue="uq")
        board.set("digend_problems", len(status.problems))
        self._workers(status)
        job = status.job
        board.replace("digend_current_job_info", {(job.id, job.name): 1} if job else {})
        if job is not None:
            board.set("digend_job_global_step", job.global_step)
            board.set("digend_job_global_steps_planned", job.num_global_steps)
            board.set("digend_job_policy_version", job.policy_version)
            board.set("digend_job_incarnation", job.incarnation)

    def _workers(self, status: StatusView) -> None:
        found = Counter((node.role, node.state) for node in status.nodes)
        self.board.replace(
            "digend_workers", {(role, state): found[role, state] for role in ROLES for state in WORKER_STATES}
        )
        up: dict[tuple[str, ...], float] = {}
        ages: dict[tuple[str, ...], float] = {}
        for node in status.nodes:
            key = (node.node, node.role, node.name.rpartition("/")[2])
            up[key], ages[key] = node.state in ("idle", "busy"), node.heartbeat_age_s
        self.board.replace("digend_worker_up", up)
        self.board.replace("digend_worker_heartbeat_age_seconds", ages)

    def _count_leases(self, leases: Iterable[Lease]) -> None:
        found = Counter(_one_of(lease.label, TASKS) for lease in leases)
        self.board.replace("digend_leases", {(task,): found[task] for task in (*TASKS, OTHER)})

    def _idle(self, body: IdleRecord) -> None:
        seconds, role = (body.end_ns - body.start_ns) / 1e9, _role(body.worker)
        stage = followed(body.cause) or ("bubble" if body.bubble else "idle")
        self.board.add("digend_worker_seconds", seconds, role=role, stage=_one_of(stage, _STAGES))
        if body.bubble:
            self.board.add("digend_bubble_seconds", seconds, role=role, cause=_one_of(body.cause, BUBBLE_CAUSES))

    def _take_figures(self, job: str, values: dict[str, float]) -> None:
        """Those of a global step replace those of the one before; evaluations stand beside them."""
        if job != self._job:
            self._job, self._figures = job, {}
        evaluated = "samples/evaluated" in values
        self._figures = {
            name: value for name, value in self._figures.items() if _of_evaluation(name) is not evaluated
        } | values
        self._show_figures()

    def _show_figures(self) -> None:
        shown = sorted(self._figures, key=lambda name: (not _fixed(name), name))[:MAX_FIGURES]
        self.board.replace("digend_job_figure", {(name,): self._figures[name] for name in shown})


def _of_evaluation(name: str) -> bool:
    return name.startswith("eval/") or name in ("samples/evaluated", "time/evaluation_s")


def _fixed(name: str) -> bool:
    """Whether the name is not of the job's making."""
    return any(figure.name == name for figure in FIGURES) or fnmatchcase(name, "bubble/*_s")


def _states(command: Command) -> int:
    body = command.record.body if isinstance(command, Write) else None
    return body.states if isinstance(body, Decision) else 0


def _role(worker: str) -> str:
    """Of `NODE/ROLE/SLOT`."""
    parts = worker.split("/")
    return _one_of(parts[1] if len(parts) == 3 else "", ROLES)


def _one_of(value: str, known: Iterable[str]) -> str:
    return value if value in known else OTHER
