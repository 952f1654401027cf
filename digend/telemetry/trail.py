"""A job's records joined by worker and time: what ran at an instant, what followed an answer, when a step ended.

Owns the looking up; knows no words for people. Invariant: one pass over the records, then binary searches. A worker's
periods do not overlap (the driver leases one task at a time), so at most one holds at an instant.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from digend.wire.records import (
    Decision,
    IdleRecord,
    JobState,
    Notice,
    Record,
    RestartRecord,
    StagingRecord,
    StepRecord,
    TaskRecord,
    WorkerState,
)

Step = tuple[int, int]
"""Incarnation and index (from 0) of a global step."""

_OF_TRAINERS = ("update", "assist", "commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A worker's task or idle time, in record `seq`."""

    seq: int
    incarnation: int
    body: TaskRecord | IdleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A decision, in record `seq`."""

    seq: int
    at_ns: int
    incarnation: int
    decision: Decision

    @property
    def step(self) -> Step:
        """Incarnation and index of the global step that was open."""
        return self.incarnation, self.decision.global_step

    @property
    def until(self) -> Step:
        """The global step whose last update was predicted."""
        return self.incarnation, max(self.decision.until_step, self.decision.global_step)


class Trail:
    """Of one job's records, in order. `start_ns`: the job's start, or its first record; `end_ns`: the newest."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.job = ""
        self.start_ns = self.end_ns = 0
        self.decisions: list[Asked] = []
        self.periods: list[Period] = []
        self.trainers: set[str] = set()
        self.restarts: list[tuple[int, RestartRecord]] = []
        """When, and what."""
        self.stagings: list[StagingRecord] = []
        self.width = ""
        """The TSP width that was measured last, in words."""
        self._incarnation = 0
        self._started = False
        self._closed: dict[Step, str] = {}
        """Why nothing was trained, "" where something was."""
        self._updates: dict[Step, list[TaskRecord]] = {}
        self._trained: list[TaskRecord] = []
        self._by_end: dict[int, list[TaskRecord]] = {}
        self._last_generated: dict[Step, int] = {}
        self._first_search: dict[Step, int] = {}
        for record in records:
            self._add(record)
        self._by_worker: dict[str, list[Period]] = {}
        for period in sorted(self.periods, key=lambda each: (each.body.start_ns, each.body.end_ns)):
            self._by_worker.setdefault(period.body.worker, []).append(period)

    def _add(self, record: Record) -> None:
        body = record.body
        if not self.job:
            self.job, self.start_ns = record.job, record.at_ns
        self.end_ns = max(self.end_ns, record.at_ns)
        if isinstance(body, TaskRecord | IdleRecord):
            self.periods.append(Period(seq=record.seq, incarnation=self._incarnation, body=body))
        if isinstance(body, Decision):
            asked = Asked(seq=record.seq, at_ns=record.at_ns, incarnation=self._incarnation, decision=body)
            self.decisions.append(asked)
            if body.states:
                self._first_search.setdefault(asked.step, record.at_ns)
        elif isinstance(body, TaskRecord):
            self._add_task(body)
        elif isinstance(body, Notice) and "timestep_width" in body.details:
            self.width = body.message
        elif isinstance(body, StagingRecord):
            self.stagings.append(body)
        elif isinstance(body, StepRecord):
            self._closed[body.incarnation, body.global_step - 1] = body.skipped or ""
        elif isinstance(body, RestartRecord):
            self._incarnation = body.incarnation
            self.restarts.append((record.at_ns, body))
        elif isinstance(body, WorkerState) and body.role == "trainer":
            self.trainers.add(body.worker)
        elif isinstance(body, JobState) and body.state in ("preparing", "running") and not self._started:
            self._started, self.start_ns = True, record.at_ns

    def _add_task(self, body: TaskRecord) -> None:
        step = self._incarnation, body.global_step
        if body.task in _OF_TRAINERS:
            self.trainers.add(body.worker)
        if body.task in ("update", "assist"):
            self._trained.append(body)
        self._by_end.setdefault(body.end_ns, []).append(body)
        if body.task == "update":
            self._updates.setdefault(step, []).append(body)
        elif body.task in ("generate", "assist"):
            self._last_generated[step] = max(self._last_generated.get(step, 0), body.start_ns)

    def seconds(self, at_ns: int) -> float:
        """Since the job's start."""
        return (at_ns - self.start_ns) / 1e9

    @property
    def bubbles(self) -> Iterator[tuple[int, IdleRecord]]:
        """With the numbers of their records."""
        for period in self.periods:
            if isinstance(period.body, IdleRecord) and period.body.bubble:
                yield period.seq, period.body

    def of_step(self, step: Step) -> list[Asked]:
        return [asked for asked in self.decisions if asked.step == step]

    def latest(self, index: int) -> Step | None:
        """The newest incarnation in which a global step was decided on."""
        return max((asked.step for asked in self.decisions if asked.decision.global_step == index), default=None)

    def end_of(self, step: Step) -> int | None:
        """End of its last update; None for a global step that is not closed, or had none."""
        updates = self._updates.get(step, ()) if step in self._closed else ()
        return max((update.end_ns for update in updates), default=None)

    def skipped(self, step: Step) -> str:
        """Why a closed global step trained nothing; "" where it did, or is open."""
        return self._closed.get(step, "")

    def updates_after(self, step: Step, at_ns: int) -> int | None:
        """How many updates of a closed global step began then or later."""
        if step not in self._closed:
            return None
        return sum(update.start_ns >= at_ns for update in self._updates.get(step, ()))

    def searched_before(self, asked: Asked) -> bool:
        """Whether there was a search in the same global step."""
        return self._first_search.get(asked.step, asked.at_ns) < asked.at_ns

    def generates_after(self, step: Step, at_ns: int) -> bool:
        """Whether a micro-batch of it was begun then or later."""
        return self._last_generated.get(step, -1) >= at_ns

    def doing(self, worker: str, at_ns: int) -> Period | None:
        """What a worker was at; of what ends there and what begins there, the second."""
        own = self._by_worker.get(worker, [])
        index = bisect_right(own, at_ns, key=lambda each: each.body.start_ns) - 1
        return own[index] if index >= 0 and at_ns < own[index].body.end_ns else None

    def trained(self, at_ns: int) -> Period | None:
        """What the trainer was at; of several ranks, the one that has the tasks."""
        found = (self.doing(trainer, at_ns) for trainer in sorted(self.trainers))
        there = [period for period in found if period is not None]
        return next((period for period in there if isinstance(period.body, TaskRecord)), next(iter(there), None))

    def tasks_at(self, at_ns: int) -> list[TaskRecord]:
        """What all workers were at."""
        found = (self.doing(worker, at_ns) for worker in sorted(self._by_worker))
        return [period.body for period in found if period is not None and isinstance(period.body, TaskRecord)]

    def tasks_ending(self, at_ns: int) -> list[TaskRecord]:
        return self._by_end.get(at_ns, [])

    def decision_before(self, at_ns: int) -> Asked | None:
        """The last one then or earlier."""
        index = bisect_right(self.decisions, at_ns, key=lambda each: each.at_ns)
        return self.decisions[index - 1] if index else None

    def generated_last(self, at_ns: int) -> bool:
        """The trainer's mode: whether the last it did of TAG and updates was TAG."""
        index = bisect_right(self._trained, at_ns, key=lambda each: each.end_ns)
        return index > 0 and self._trained[index - 1].task == "assist"
