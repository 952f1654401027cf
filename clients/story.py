"""Records of a job as lines, one a change. Pure: knows records, prints nothing."""

from functools import singledispatch
from pathlib import Path

from clients.words import age, number
from digend.telemetry.figures import in_order
from digend.telemetry.stages import FINAL_STATES
from digend.wire import records as r
from digend.wire.views import JobDetail

METRIC_DIGITS = 3


@singledispatch
def line_of(body: object) -> str | None:
    """What a record says in one line; None for those that are only of use to the recorder."""
    return None


@line_of.register
def _(body: r.JobState) -> str | None:
    """How a job ended is the last line, which says more."""
    if body.state in FINAL_STATES:
        return None
    return f"{body.state}: {body.reason}" if body.reason else body.state


@line_of.register
def _(body: r.OriginRecord) -> str:
    return f"forked from {body.parent} at global step {body.global_step}: {body.path}"


@line_of.register
def _(body: r.StepRecord) -> str:
    parts = [
        f"global step {body.global_step}",
        f"reward {number(body.reward_mean)}",
        age(body.seconds),
        f"policy version {body.version}",
    ]
    if body.num_masked:
        parts.append(f"{body.num_masked} of {body.num_samples} samples masked")
    if body.num_dropped_groups:
        parts.append(f"{body.num_dropped_groups} of {body.num_groups} groups dropped")
    if body.skipped:
        parts.append(f"skipped: {body.skipped}")
    return ", ".join(parts)


@line_of.register
def _(body: r.EvaluationRecord) -> str:
    failed = f", {body.num_failed} of {body.num_samples} samples failed" if body.num_failed else ""
    none = "no reward, " if body.num_failed and body.num_failed == body.num_samples else ""
    figures = f"{none}{metrics(body.metrics)}, {age(body.seconds)}"
    return f"evaluation {body.label} (global step {body.global_step}): {figures}{failed}"


@line_of.register
def _(body: r.CheckpointRecord) -> str:
    return f"checkpoint at global step {body.global_step}: {body.path}"


@line_of.register
def _(body: r.RestartRecord) -> str:
    return f"incarnation {body.incarnation} goes on from global step {body.global_step}: {body.reason}"


@line_of.register
def _(body: r.WorkerState) -> str:
    return f"{body.role} {body.worker} {body.state}" + (f": {body.reason}" if body.reason else "")


@line_of.register
def _(body: r.TaskFailure) -> str:
    return f"{body.task} failed on {body.worker}: {body.message} ({body.reason})"


@line_of.register
def _(body: r.Notice) -> str | None:
    """An error is why the job failed, which its last line says."""
    if body.level == "error":
        return None
    details = "".join(f", {key} {value}" for key, value in sorted(body.details.items()))
    return f"{body.level}: {body.message}{details}"


def metrics(values: dict[str, float]) -> str:
    """`reward 0.655, shapes_independent 0.774`: the reward first."""
    return ", ".join(f"{name} {number(values[name], METRIC_DIGITS)}" for name in in_order(values)) or "no metrics"


def run_folder(detail: JobDetail) -> Path | None:
    """Where pictures, curves and report of a job are, on the recorder's box; None before its first checkpoint."""
    return Path(detail.checkpoint).parents[1] if detail.checkpoint else None
