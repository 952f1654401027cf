"""What a tracker is. One object a job, used from one thread.

Invariant of every implementation: what it was given twice (a recorder that was killed starts it again with all of the
past) is there once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from digend.wire.records import EvaluationRecord, Record, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A job as trackers know it. `folder`: its run folder; `config`: the resolved job file."""

    job: str
    name: str
    folder: Path
    config: Mapping[str, object] = field(default_factory=dict)


class Tracker(Protocol):
    """Every method may take long and may raise; whoever calls decides what that means."""

    def start(self, run: TrackedRun, past: Sequence[Record]) -> None:
        """Before anything else. `past`: what was logged before, by this object's predecessors too."""
        ...

    def log(self, records: Sequence[Record]) -> None:
        """Global steps and evaluations (`is_logged`), in order, with the figures of `digend.telemetry.figures`."""
        ...

    def image(self, name: str, path: Path, record: Record) -> None:
        """A sheet of samples that `record`, an evaluation, was drawn on."""
        ...

    def finish(self, state: str) -> None:
        """The job is over: completed, failed or cancelled."""
        ...


def is_logged(record: Record) -> bool:
    """Whether trackers are given it: it has figures, or it is the first of its job."""
    return record.seq == 0 or isinstance(record.body, StepRecord | EvaluationRecord)
