"""What people ask of jobs and nodes, as changes of the state. A request that makes no sense any more changes nothing.

Whether the name is right, and in time, was settled before the event was made.
"""

from broker.events import (
    CancelRequested,
    DrainRequested,
    JobSubmitted,
    PauseRequested,
    PriorityRequested,
    ResumeRequested,
    UndrainRequested,
)
from broker.holds import Drain
from broker.lifecycle import record_state, set_state
from broker.losses import unassign
from broker.placement import involved, serves
from broker.state import Job, State
from broker.stopping import cancel, pause, resume, resume_drained
from digend.wire.records import OriginRecord
from digend.wire.refs import CheckpointRef
from digend.wire.tasks import CheckpointResult


def submitted(state: State, event: JobSubmitted) -> None:
    if event.spec.id in state.jobs:
        return
    job = Job(spec=event.spec, submitted_ns=state.now, user=event.user, priority=event.priority)
    state.jobs[job.id] = job
    job.state = ""
    set_state(state, job, "queued", "submitted")
    if event.spec.origin is not None:
        _start_from(state, job, event.spec.origin)


def _start_from(state: State, job: Job, origin: CheckpointRef) -> None:
    """A fork begins where the checkpoint was written, and writes its own copy first: the parent's may be deleted."""
    job.checkpoint = CheckpointResult(path=origin.path, digest=origin.digest)
    job.checkpoint_at, job.checkpoint_node = (origin.global_step, origin.version), origin.node
    job.global_step, job.version = job.checkpoint_at
    job.checkpoint_due = True
    state.record(
        job,
        OriginRecord(
            parent=origin.job,
            global_step=origin.global_step,
            version=origin.version,
            path=origin.path,
            digest=origin.digest,
        ),
    )


def cancelled(state: State, event: CancelRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None and job.open:
        cancel(state, job, event.after, event.by)


def paused(state: State, event: PauseRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None:
        pause(state, job, event.by, event.why)


def resumed(state: State, event: ResumeRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None and job.open:
        resume(state, job)


def reprioritised(state: State, event: PriorityRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None and job.open and job.priority != event.priority:
        job.priority = event.priority
        record_state(state, job)


def drained(state: State, event: DrainRequested) -> None:
    """What was dealt to its workers and not begun is anybody's."""
    known = state.drains.get(event.target)
    since_ns = known.since_ns if known is not None else state.now
    state.drains[event.target] = Drain(target=event.target, by=event.by, why=event.why, since_ns=since_ns)
    for job in state.active():
        for worker in state.workers.values():
            if involved(job, worker) and not serves(state, job, worker):
                unassign(job, worker)


def undrained(state: State, event: UndrainRequested) -> None:
    if state.drains.pop(event.target, None) is not None:
        resume_drained(state, event.target)
