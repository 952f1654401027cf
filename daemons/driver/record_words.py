"""Records in words, for stories: which of them concern a subject, and what they say of it. Pure."""

import re
from collections.abc import Iterator

from digend.telemetry.figures import in_order
from digend.wire import records as r
from digend.wire.story import Transition
from digend.wire.subjects import Subject

LOST = "lost "
"""How the cause of an idle time begins that is a lease which came to nothing."""


def of_record(
    record: r.Record, subject: Subject, *, begun: bool, alone: bool, updates: int = 1
) -> Iterator[Transition]:
    """What a record says of a subject. `begun`: a micro-batch is between claim and commit, so that a notice with its
    number means it. `alone`: there is no batch beside it, so that finished tasks are told from their records; `updates`
    a rollout tell their micro-batch."""
    body = record.body
    if subject.job and record.job != subject.job:
        return
    match subject.kind:
        case "job":
            told = _of_job(body)
        case "worker":
            told = _of_worker(body, subject.name, alone)
        case "policy version":
            told = _of_version(body, subject.version, alone)
        case "lease":
            told = _task(body) if alone and isinstance(body, r.TaskRecord) and body.lease == subject.name else None
        case _:
            mine = alone and _is_of(body, subject, updates)
            told = _task(body) if mine else _of_micro_batch(body, subject) if begun or alone else None
    if told is not None:
        yield told


def _of_job(body: r.RecordBody) -> Transition | None:
    match body:
        case r.JobState(state=state, reason=reason):
            return told(state, reason)
        case r.OriginRecord(parent=parent, global_step=step, version=version, path=path):
            return told(f"forked from {parent} at global step {step}, policy version {version}", path)
        case r.StepRecord():
            reward = "no reward" if body.reward_mean is None else f"reward {body.reward_mean:.4g}"
            return told(f"global step {body.global_step} closed, {reward}", _step(body))
        case r.EvaluationRecord(label=label, global_step=step, metrics=metrics):
            values = ", ".join(f"{name} {metrics[name]:.4g}" for name in in_order(metrics))
            return told(f"evaluation {label} at global step {step}", values)
        case r.CheckpointRecord(global_step=step, path=path):
            return told(f"checkpoint at global step {step}", path)
        case r.RestartRecord():
            return _restart(body)
        case r.WorkerState(worker=worker, state=state, reason=reason):
            return told(f"worker {state}", reason, worker)
        case r.TaskFailure(worker=worker, task=task, reason=reason, message=message):
            return told(f"{task} failed ({reason})", message, worker)
        case r.Notice(level=level, message=message):
            return told(level, message)
    return None


def _of_worker(body: r.RecordBody, worker: str, alone: bool) -> Transition | None:
    if getattr(body, "worker", None) != worker:
        return None
    match body:
        case r.WorkerState(state=state, reason=reason):
            return told(state, reason, worker)
        case r.IdleRecord(cause=cause, bubble=bubble) if alone or not cause.startswith(LOST):
            seconds = (body.end_ns - body.start_ns) / 1e9
            return told(f"{'bubble' if bubble else 'idle'} of {seconds:.3g} s ended", cause, worker)
        case r.TaskRecord() | r.TaskFailure() if alone:
            return _task(body)
        case r.StagingRecord() if alone:
            return _staging(body)
    return None


def _of_version(body: r.RecordBody, version: int, alone: bool) -> Transition | None:
    match body:
        case r.StepRecord(version=made, skipped=None) if made == version:
            return told(f"made by global step {body.global_step}", _step(body))
        case r.CheckpointRecord(version=kept, path=path) if kept == version:
            return told("in a checkpoint", path)
        case r.StagingRecord(version=staged) if alone and staged == version:
            return _staging(body)
        case r.EvaluationRecord(version=used, label=label) if used == version:
            return told(f"evaluated ({label})", f"global step {body.global_step}")
    return None


def _of_micro_batch(body: r.RecordBody, subject: Subject) -> Transition | None:
    match body:
        case r.Notice(message=message, details=details):
            numbered = re.search(rf"\bmicro-batch {subject.micro_batch}\b", message)
            masked = details.get("micro_batch") == str(subject.micro_batch)
            return told("resolved with masked samples" if masked else "notice", message) if numbered or masked else None
        case r.RestartRecord():
            return _restart(body)
    return None


def _is_of(body: r.RecordBody, subject: Subject, updates: int) -> bool:
    if not isinstance(body, r.TaskRecord | r.TaskFailure) or body.task.startswith("evaluate"):
        return False
    return body.micro_batch == subject.micro_batch and body.global_step // updates == subject.rollout


def _task(body: r.RecordBody) -> Transition | None:
    match body:
        case r.TaskRecord(worker=worker, task=task, lease=lease):
            seconds = (body.end_ns - body.start_ns) / 1e9
            version = f", version {body.version}" if body.version >= 0 else ""
            return told(f"{task} done in {seconds:.3g} s: {body.num_samples} samples{version}", "", worker, lease)
        case r.TaskFailure(worker=worker, task=task, reason=reason, message=message):
            return told(f"{task} failed ({reason})", message, worker)
    return None


def _staging(body: r.StagingRecord) -> Transition:
    if body.error:
        return told(f"version {body.version} not staged", body.error, body.worker)
    seconds = (body.end_ns - body.start_ns) / 1e9
    way = f", pulled because its broadcast failed: {body.fell_back}" if body.fell_back else ""
    way = ", by broadcast" if body.by == "broadcast" else way
    return told(f"version {body.version} staged in {seconds:.3g} s", f"{body.num_bytes} bytes{way}", body.worker)


def _restart(body: r.RestartRecord) -> Transition:
    return told(f"incarnation {body.incarnation} goes on from global step {body.global_step}", body.reason)


def _step(body: r.StepRecord) -> str:
    made = f"skipped: {body.skipped}" if body.skipped else f"policy version {body.version}"
    stale = f", {body.stale_micro_batches} stale micro-batches" if body.stale_micro_batches else ""
    masked = f", {body.num_masked} of {body.num_samples} samples masked" if body.num_masked else ""
    return f"{made}, {body.z} of {body.z0} pairs{masked}{stale}"


def told(what: str, cause: str = "", worker: str = "", lease: str = "") -> Transition:
    """A transition whose time is filled in by whoever knows it."""
    return Transition(at_ns=0, what=what, cause=cause, worker=worker, lease=lease)
