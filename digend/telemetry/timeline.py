"""What every worker did when: spans for the report's timeline, bounded in number.

Owns the cut of records into spans. Knows no pixels and no files. Invariant: at most `limit` spans are kept,
the newest; how many were dropped is counted, so that the report can say from when on it shows the run.

The stages inside one task are drawn in the receipt's order with the dispatch time split before and after:
the receipt has durations, not instants. A policy version is staged while tasks run, so these spans are kept apart.
"""

from collections import deque
from dataclasses import dataclass

from digend.telemetry.stages import OTHER, followed, idle_stage, task_stages
from digend.wire.records import (
    EvaluationRecord,
    IdleRecord,
    JobState,
    Record,
    RestartRecord,
    StagingRecord,
    StepRecord,
    TaskRecord,
)

STAGE_KINDS = {
    "encode": "encode",
    "decode": "decode",
    "score": "score",
    "update": "update",
    "update_gather": "update",
    "measure": "update",
    "optimizer": "optimizer",
    "gather": "publish",
    "cast": "publish",
    "publish": "publish",
    "switch": "switch",
    "stage": "stage",
    "swap": "stage",
    "checkpoint": "checkpoint",
    "load": "load",
    "fetch": "fetch",
    "generate": "generate",
    "evaluate": "evaluate",
}
"""The stages that are told apart, and as what each is drawn."""
_IN_STEP = ("generate", "assist", "score", "update", "commit")
"""Tasks of an open global step: theirs is an index, people count from 1."""

KINDS = (*sorted(set(STAGE_KINDS.values())), "assist", "idle", "bubble", OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`worker` was at `kind` (one of `KINDS`) from `start_ns` to `end_ns` of the driver's clock; `title` in
    words.
    """

    worker: str
    start_ns: int
    end_ns: int
    kind: str
    title: str
    stage: str = ""
    """As the receipt names it; finer than `kind`."""
    cause: str = ""
    """Of idle time."""
    task: TaskRecord | None = None
    """Whose stage it is; the spans of one task share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the whole job was at: kind "step" (`number` counts from 1), or a named pause, "evaluation" or
    "checkpoint" (`number`: after which global step).
    """

    kind: str
    title: str
    number: int
    start_ns: int
    end_ns: int
    reward: float | None = None
    """Mean of a global step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An instant worth a line across all workers: step, evaluation, restart, state."""

    at_ns: int
    kind: str
    title: str


class Timeline:
    """Collects one job's spans, marks and phases, in order of its records."""

    def __init__(self, limit: int | None = 20_000) -> None:
        self._spans: deque[Span] = deque(maxlen=limit)
        self._marks: deque[Mark] = deque(maxlen=limit)
        self._phases: deque[Phase] = deque(maxlen=limit)
        self._stagings: deque[Span] = deque(maxlen=limit)
        self.job = ""
        self.num_spans = 0

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(self._spans)

    @property
    def marks(self) -> tuple[Mark, ...]:
        return tuple(self._marks)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._phases)

    @property
    def stagings(self) -> tuple[Span, ...]:
        """Policy versions on their way to workers, in the background of their tasks."""
        return tuple(self._stagings)

    @property
    def num_dropped(self) -> int:
        return self.num_spans - len(self._spans)

    def add(self, record: Record) -> None:
        body = record.body
        self.job = record.job
        phase = phase_of(record)
        if phase is not None:
            self._phases.append(phase)
        if isinstance(body, TaskRecord):
            self._extend(task_spans(body))
        elif isinstance(body, StagingRecord):
            self._stagings.append(staging_span(body))
        elif isinstance(body, IdleRecord):
            stage = followed(body.cause)
            kind = _kind_followed(stage) if stage else "bubble" if body.bubble else "idle"
            span = Span(
                worker=body.worker,
                start_ns=body.start_ns,
                end_ns=body.end_ns,
                kind=kind,
                title=idle_stage(body),
                cause="" if stage else body.cause,
            )
            self._extend([span])
        else:
            mark = mark_of(record)
            if mark is not None:
                self._marks.append(mark)

    def _extend(self, spans: list[Span]) -> None:
        self._spans.extend(spans)
        self.num_spans += len(spans)


def _kind_followed(stage: str) -> str:
    return "assist" if stage == "assist_generate" else STAGE_KINDS.get(stage, OTHER)


def task_spans(record: TaskRecord) -> list[Span]:
    """A finished task cut into its stages; the time the receipt does not explain is left out."""
    stages = task_stages(record)
    dispatch = sum(duration for stage, duration in stages if stage == "dispatch")
    at = record.start_ns + dispatch // 2
    what = _describe(record)
    spans = []
    for stage, duration in stages:
        if stage == "dispatch":
            continue
        kind = "assist" if stage.startswith("assist_") else STAGE_KINDS.get(stage, OTHER)
        title = f"{stage.replace('assist_', 'assist, ').replace('update_', 'update, ')} · {what}"
        spans.append(
            Span(
                worker=record.worker,
                start_ns=at,
                end_ns=at + duration,
                kind=kind,
                title=title,
                stage=stage,
                task=record,
            )
        )
        at += duration
    return spans


def staging_span(record: StagingRecord) -> Span:
    """From the driver's word to the worker's."""
    way = "broadcast" if record.by == "broadcast" else "pulled"
    pulled, checked = f"{way} in {record.pull_ns / 1e9:.3g} s", f"checked in {record.check_ns / 1e9:.3g} s"
    took = f"{record.num_bytes / 1e6:.3g} MB, {pulled}, {checked}"
    return Span(
        worker=record.worker,
        start_ns=record.start_ns,
        end_ns=record.end_ns,
        kind="stage",
        title=f"stage policy version {record.version} · {f'failed: {record.error}' if record.error else took}",
        stage="stage",
    )


def phase_of(record: Record) -> Phase | None:
    """The global step, evaluation or checkpoint that a record ends, if any."""
    body, at_ns = record.body, record.at_ns
    if isinstance(body, StepRecord):
        return Phase(
            kind="step",
            title=f"global step {body.global_step}",
            number=body.global_step,
            start_ns=at_ns - round(body.seconds * 1e9),
            end_ns=at_ns,
            reward=body.reward_mean,
        )
    if isinstance(body, EvaluationRecord):
        return Phase(
            kind="evaluation",
            title=f"evaluation {body.label}",
            number=body.global_step,
            start_ns=at_ns - round(body.seconds * 1e9),
            end_ns=at_ns,
        )
    if isinstance(body, TaskRecord) and body.task == "checkpoint":
        return Phase(
            kind="checkpoint",
            title="checkpoint",
            number=body.global_step,
            start_ns=body.start_ns,
            end_ns=body.end_ns,
        )
    return None


def mark_of(record: Record) -> Mark | None:
    """The line a record draws across the timeline, if any."""
    body = record.body
    if isinstance(body, StepRecord):
        return Mark(at_ns=record.at_ns, kind="step", title=f"global step {body.global_step} closed")
    if isinstance(body, EvaluationRecord):
        return Mark(at_ns=record.at_ns, kind="evaluation", title=f"evaluation {body.label}")
    if isinstance(body, RestartRecord):
        return Mark(at_ns=record.at_ns, kind="restart", title=f"restart {body.incarnation}: {body.reason}")
    if isinstance(body, JobState):
        return Mark(at_ns=record.at_ns, kind="state", title=body.state)
    return None


def _describe(record: TaskRecord) -> str:
    parts = [record.task]
    if record.global_step >= 0 and record.task in _IN_STEP:
        parts.append(f"global step {record.global_step + 1}")
    if record.micro_batch >= 0:
        parts.append(f"micro-batch {record.micro_batch}")
    if record.version >= 0:
        parts.append(f"policy version {record.version}")
    if record.num_samples > 0:
        parts.append(f"{record.num_samples} samples")
    if record.switched:
        parts.append(f"after a switch to {'training' if record.task == 'update' else 'generating'}")
    return ", ".join(parts)
