"""The driver's log lines about a job: what an operator wants to find later, of all that its records say.

Owns which records are worth a line, and at which level; finished tasks are debug lines. Decides nothing. Each line has
the job, and where there is one the policy version and the micro-batch, as fields.
"""

from digend.telemetry.logs import about, is_on, logger
from digend.wire.records import (
    CheckpointRecord,
    EvaluationRecord,
    JobState,
    Notice,
    Record,
    RecordBody,
    RestartRecord,
    StepRecord,
    TaskFailure,
    TaskRecord,
)

log = logger()

_TOLD = (JobState, StepRecord, EvaluationRecord, CheckpointRecord, RestartRecord, TaskFailure, Notice)

UNKNOWN = -1
"""What records say for a micro-batch, step or version that a task does not have."""


def enter(record: Record) -> None:
    """Logs a record that was just journalled, if it is worth a line."""
    if not _worth_a_line(record.body):
        return
    with about(job=record.job):
        match record.body:
            case JobState(state=state, reason=reason):
                log.info(f"job {state}", **_known(reason=reason))
            case StepRecord() as step:
                _step(step)
            case EvaluationRecord(label=label, version=version, metrics=metrics):
                log.info("evaluated", label=label, policy_version=version, **_rounded(metrics))
            case CheckpointRecord(version=version, path=path):
                log.info("checkpoint", policy_version=version, path=path)
            case RestartRecord(incarnation=incarnation, global_step=global_step, reason=reason):
                log.warning("back to a checkpoint", incarnation=incarnation, global_step=global_step, reason=reason)
            case TaskFailure() | TaskRecord() as task:
                _task(task)
            case Notice(level=level, message=message):
                (log.info if level == "info" else log.warning)(message)


def _worth_a_line(body: RecordBody) -> bool:
    """Asked first, because to bind what a line carries takes longer than all else, and most records are of tasks and
    idle times."""
    if isinstance(body, TaskRecord):
        return is_on("debug")
    return isinstance(body, _TOLD)


def _step(step: StepRecord) -> None:
    log.info(
        "global step closed",
        global_step=step.global_step,
        policy_version=step.version,
        seconds=round(step.seconds, 2),
        **({} if step.reward_mean is None else {"reward": round(step.reward_mean, 4)}),
        **_known(skipped=step.skipped),
    )


def _task(task: TaskFailure | TaskRecord) -> None:
    told = _known(worker=task.worker, task=task.task, micro_batch=task.micro_batch)
    if isinstance(task, TaskFailure):
        log.warning("task failed", reason=task.reason, error=task.message, **told)
    else:
        log.debug(
            "task done", seconds=(task.end_ns - task.start_ns) / 1e9, **told, **_known(policy_version=task.version)
        )


def _known(**fields: str | int | None) -> dict[str, str | int]:
    """Those that say something."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", UNKNOWN)}


def _rounded(metrics: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in metrics.items()}
