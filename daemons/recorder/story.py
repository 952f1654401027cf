"""Everything the report tells of one job, gathered from its records one by one.

Owns the gathering. Knows no files and no HTML. Invariant: bounded by the number of global steps and
evaluations, not by the number of tasks; a step that was made again after a restart replaces the first try.
"""

import tomllib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from digend.config.job import JobConfig
from digend.telemetry.figures import figures
from digend.telemetry.stages import StageTable
from digend.telemetry.summary import Summary
from digend.telemetry.timeline import Timeline
from digend.wire.records import (
    EvaluationRecord,
    Notice,
    Record,
    RestartRecord,
    StepRecord,
    TaskFailure,
    WorkerState,
)
from digend.wire.views import JobDetail

MAX_INCIDENTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that did not go as it should, in words."""

    at_ns: int
    what: str
    where: str
    text: str


@dataclass(slots=True)
class Curves:
    """Figures by closed global steps."""

    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    evaluations: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        body = record.body
        if isinstance(body, StepRecord):
            while self.steps and next(reversed(self.steps)) >= body.global_step:
                self.steps.popitem()
            self.steps[body.global_step] = figures(body)
        elif isinstance(body, EvaluationRecord):
            self.evaluations[body.global_step] = figures(body)

    def step_series(self, name: str) -> list[tuple[float, float]]:
        return [(float(at), values[name]) for at, values in sorted(self.steps.items()) if name in values]

    def evaluation_series(self, name: str) -> list[tuple[float, float]]:
        return [(float(at), values[name]) for at, values in sorted(self.evaluations.items()) if name in values]


class Story:
    """Add the records in order, then read."""

    def __init__(self, config: JobConfig | None) -> None:
        self.config = config
        self._summary = Summary(
            name=config.name if config else "",
            num_global_steps=config.training.global_steps if config else 0,
        )
        self.timeline = Timeline()
        self.curves = Curves()
        self.incidents: deque[Incident] = deque(maxlen=MAX_INCIDENTS)
        self.num_incidents = 0
        self.tracker_troubles: dict[str, str] = {}
        """Set by the recorder; not in the records."""
        self.before: EvaluationRecord | None = None
        self.latest: EvaluationRecord | None = None

    def add(self, record: Record) -> None:
        self._summary.add(record)
        self.timeline.add(record)
        self.curves.add(record)
        if isinstance(record.body, EvaluationRecord):
            self.latest = record.body
            self.before = record.body if record.body.label == "before" else self.before
        incident = incident_of(record)
        if incident is not None:
            self.incidents.append(incident)
            self.num_incidents += 1

    def detail(self) -> JobDetail:
        return self._summary.detail()

    def stage_table(self) -> StageTable:
        return self._summary.stage_table()


def incident_of(record: Record) -> Incident | None:
    """What belongs into the report's list of incidents."""
    body = record.body
    if isinstance(body, RestartRecord):
        return Incident(at_ns=record.at_ns, what="restart", where="trainer", text=body.reason)
    if isinstance(body, TaskFailure):
        text = f"{body.reason}: {body.message}"
        return Incident(at_ns=record.at_ns, what=f"{body.task} failed", where=body.worker, text=text)
    if isinstance(body, WorkerState) and body.state not in ("joined", "left"):
        return Incident(at_ns=record.at_ns, what=body.state, where=body.worker, text=body.reason)
    if isinstance(body, Notice):
        return Incident(at_ns=record.at_ns, what=body.level, where="driver", text=body.message)
    if isinstance(body, StepRecord) and body.skipped is not None:
        text = f"global step {body.global_step}: {body.skipped}"
        return Incident(at_ns=record.at_ns, what="no optimizer step", where="trainer", text=text)
    return None


def read_config(path: Path) -> JobConfig | None:
    """The job's resolved file; None where it is missing or of another version."""
    try:
        return JobConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
