"""Jobs side by side: what of their configuration differs, and what came of it. Pure.

Must not know where jobs come from. Invariant: every table has a column a job, in the order given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from digend.telemetry.figures import in_order
from digend.telemetry.summary import Summary
from digend.wire.records import CheckpointRecord, JobState, Record
from digend.wire.views import EvaluationView

ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What is compared of one job. `config` flat, by `table.key`; `stages`: seconds over all workers; `weights`: digest
    of the trained weights at each global step, of checkpoints that can be read, `DIGEST/N` of those in N files."""

    id: str
    state: str
    config: dict[str, object]
    evaluations: tuple[EvaluationView, ...]
    seconds: float
    stages: dict[str, float]
    bubble_share: float
    weights: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row: what it is, and its value for each job; None where a job has none."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`weights` holds a line a global step at which several have a checkpoint: whether the digests are equal."""

    jobs: tuple[str, ...]
    states: tuple[str, ...]
    configuration: tuple[Line, ...]
    evaluations: tuple[Line, ...]
    seconds: tuple[Line, ...]
    bubble_share: Line
    weights: tuple[Line, ...]


def read(
    job: str, table: Mapping[str, Any], records: Iterable[Record], digest_of: Callable[[str], str | None]
) -> Finished:
    """A job from its job file and its records; `digest_of` the weights in a checkpoint's folder, None if not known."""
    summary, state = Summary(), "queued"
    weights: dict[int, str] = {}
    for record in records:
        summary.add(record)
        if isinstance(record.body, CheckpointRecord):
            digest = digest_of(record.body.path)
            weights |= {record.body.global_step: digest} if digest else {}
        elif isinstance(record.body, JobState):
            state = record.body.state
    detail, stages = summary.detail(), summary.stage_table()
    totals: dict[str, float] = {}
    for by_stage in stages.seconds.values():
        for stage, seconds in by_stage.items():
            totals[stage] = totals.get(stage, 0.0) + seconds
    return Finished(
        id=job,
        state=state,
        config=flat(table),
        evaluations=detail.evaluations,
        seconds=detail.seconds,
        stages=totals,
        bubble_share=stages.bubble_share,
        weights=weights,
    )


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """`{"training": {"seed": 1}}` is `{"training.seed": 1}`; lists of tables are numbered."""
    found: dict[str, object] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            for index, each in enumerate(value):
                found |= flat(each, f"{name}[{index}].")
        else:
            found[name] = value
    return found


def compare(jobs: Sequence[Finished]) -> Comparison:
    """Two or more."""
    return Comparison(
        jobs=tuple(job.id for job in jobs),
        states=tuple(job.state for job in jobs),
        configuration=_configuration(jobs),
        evaluations=_evaluations(jobs),
        seconds=_seconds(jobs),
        bubble_share=Line(name="bubble share", values=tuple(job.bubble_share for job in jobs)),
        weights=_weights(jobs),
    )


def _configuration(jobs: Sequence[Finished]) -> tuple[Line, ...]:
    """Keys that differ, or that not all have."""
    names = dict.fromkeys(name for job in jobs for name in job.config)
    lines = (Line(name=name, values=tuple(job.config.get(name) for job in jobs)) for name in names)
    return tuple(line for line in lines if any(value != line.values[0] for value in line.values))


def _evaluations(jobs: Sequence[Finished]) -> tuple[Line, ...]:
    """`before, reward`: those at one global step with one label, metric by metric."""
    tables = [{(each.global_step, each.label): each.metrics for each in job.evaluations} for job in jobs]
    places = sorted({place for table in tables for place in table}, key=lambda place: (place[1] == "after", place))
    lines = []
    for step, label in places:
        found = [table.get((step, label), {}) for table in tables]
        for name in in_order({name: 0.0 for metrics in found for name in metrics}):
            values = tuple(metrics.get(name) for metrics in found)
            lines.append(Line(name=f"{label} (global step {step}): {name}", values=values))
    return tuple(lines)


def _seconds(jobs: Sequence[Finished]) -> tuple[Line, ...]:
    """Wall time, then the stages, the longest over all jobs first."""
    stages = {stage for job in jobs for stage in job.stages}
    ordered = sorted(stages, key=lambda stage: (-sum(job.stages.get(stage, 0.0) for job in jobs), stage))
    wall = Line(name="wall time", values=tuple(job.seconds for job in jobs))
    return (wall, *(Line(name=stage, values=tuple(job.stages.get(stage) for job in jobs)) for stage in ordered))


def _weights(jobs: Sequence[Finished]) -> tuple[Line, ...]:
    steps = sorted({step for job in jobs for step in job.weights})
    lines = (Line(name=f"global step {step}", values=tuple(job.weights.get(step) for job in jobs)) for step in steps)
    return tuple(line for line in lines if sum(value is not None for value in line.values) > 1)


def comparable(line: Line) -> bool:
    """Whether digests of weights are of equally many files: others differ for the same weights too."""
    return len({value.partition("/")[2] for value in line.values if value is not None}) == 1


def same(line: Line) -> bool:
    """Whether all that have a value have the same."""
    return len({value for value in line.values if value is not None}) == 1
