"""Jobs that leave their workers before they are over: paused, or cancelled where a global step or leases end first.

Owns what a job is asked and when it does it. Invariant: a job that is paused after a global step has a checkpoint of
just that step (or has not trained yet), so that it goes on as if it had never stopped.
"""

from dataclasses import replace

from broker.events import After
from broker.holds import Stop, because
from broker.lifecycle import finish, release_workers, set_state
from broker.microbatch import Phase
from broker.state import Job, State
from digend.wire.records import Notice

MAX_REASONS_CHARS = 400
"""Of those who asked for one pause, together."""


def cancel(state: State, job: Job, after: After, by: str) -> None:
    """At once where the job has no workers; else as it is asked. Asked again, the newest word holds."""
    if after == "now" or not job.active:
        finish(state, job, "cancelled", f"by {by}" if by else "by request")
        return
    _release(state, job)
    _ask(state, job, Stop(to="cancelled", after=after, global_step=_next_border(job), by=by))


def pause(state: State, job: Job, by: str, why: str, drained: str = "") -> None:
    """At the next border of global steps; at once where the job has no workers. Not where it is being cancelled.

    One that is held for what it skipped goes on as far as that border. Asked again, a pause by a person stays as it is,
    but for a reason that is given now and stands behind the first; one for a drain becomes that person's, and outlives
    the drain.
    """
    if not job.open or (job.stop is not None and job.stop.to == "cancelled"):
        return
    if job.stop is not None and not job.stop.drained:
        if not drained:
            _add_reason(state, job, job.stop, by, why)
        return
    if job.state == "paused" and drained:
        return
    stop = Stop(to="paused", after="global-step", global_step=_pausing_border(job), by=by, why=why, drained=drained)
    if job.active:
        _release(state, job)
        _ask(state, job, stop)
    else:
        job.stop = stop
        set_state(state, job, "paused", f"paused{stop.because}")


def _add_reason(state: State, job: Job, stop: Stop, by: str, why: str) -> None:
    said = f"{by}: {why}" if by else why
    if not why or said in stop.because or len(stop.why) > MAX_REASONS_CHARS:
        return
    job.stop = replace(stop, why=f"{stop.why}; {said}" if stop.why else said)
    if job.state == "paused":
        set_state(state, job, "paused", f"paused{job.stop.because}")


def resume(state: State, job: Job) -> None:
    """Back to the queue, or on without a pause where it had not come to one yet. One that is held for what it skipped
    goes on."""
    _release(state, job)
    if job.stop is None or job.stop.to != "paused":
        return
    job.stop = None
    if job.state == "paused":
        set_state(state, job, "queued", "resumed")
    else:
        state.record(job, Notice(level="info", message="the job goes on without a pause"))


def _release(state: State, job: Job) -> None:
    """What it skipped is forgiven."""
    if job.hold:
        job.hold, job.num_skipped = "", 0
        if job.state == "held":
            set_state(state, job, "running")


def resume_drained(state: State, target: str) -> None:
    """A drain ended: what it had paused goes on."""
    for job in state.jobs.values():
        if job.open and job.stop is not None and job.stop.drained == target:
            resume(state, job)


def _ask(state: State, job: Job, stop: Stop) -> None:
    job.stop = stop
    state.record(job, Notice(level="info", message=f"the job {plan(job)}"))


def plan(job: Job) -> str:
    """What a job that is to stop does first, in words; "" where it is not."""
    stop = job.stop
    if stop is None or not job.active:
        return ""
    what = "pauses" if stop.to == "paused" else "is cancelled"
    if stop.after == "micro-batch":
        return f"{what} after its running tasks{stop.because}"
    last = stop.global_step
    return f"{what} after global step {last} of {job.spec.num_global_steps}{stop.because}"


def _next_border(job: Job) -> int:
    """How many global steps are done when the one that is open has ended."""
    return job.global_step if _between_steps(job) else job.global_step + 1


def _between_steps(job: Job) -> bool:
    """Whether nothing was trained since the last commit. With staleness, the next global step may have begun to train
    while the evaluation at its border goes on."""
    trained = any(batch.phase in (Phase.UPDATING, Phase.APPLIED) for batch in job.step_batches())
    return job.at_border and not trained


def _pausing_border(job: Job) -> int:
    """As above, but never inside a rollout that feeds several global steps: the rest of it could not be kept."""
    updates = job.spec.updates_per_rollout
    return job.global_step if _between_steps(job) else min(_rollout_end(job, updates), job.spec.num_global_steps)


def _rollout_end(job: Job, updates: int) -> int:
    return (job.global_step // updates + 1) * updates


def leave(state: State, job: Job) -> bool:
    """Stop a job whose time to stop has come, or bring it nearer. Whether it left its workers."""
    _drain(state, job)
    stop = job.stop
    if stop is None or not _due(state, job, stop):
        return False
    if stop.after == "global-step" and job.state == "running" and job.checkpoint_at != (job.global_step, job.version):
        job.checkpoint_due = True
        return False
    if stop.to == "cancelled":
        finish(state, job, "cancelled", f"{_after(job, stop)}{stop.because}")
    else:
        _suspend(state, job, stop)
    return True


def _after(job: Job, stop: Stop) -> str:
    done = f"after global step {job.global_step}" if stop.after == "global-step" else "after its running tasks"
    return done if stop.by else f"by request, {done}"


def _drain(state: State, job: Job) -> None:
    """A job whose trainer, or one of whose ranks, is drained is paused for it."""
    there = [state.workers[name] for name in job.ranks if name in state.workers]
    drain = next((drain for worker in there if (drain := state.drain_of(worker)) is not None), None)
    if drain is not None and job.stop is None:
        pause(state, job, drain.by, f"{drain.target} is drained{because('', drain.why)}", drain.target)


def _due(state: State, job: Job, stop: Stop) -> bool:
    if stop.after == "micro-batch":
        return not any(lease.job == job.id for lease in state.leases.values())
    return job.state == "preparing" or (job.leaving and job.state == "running")


def _suspend(state: State, job: Job, stop: Stop) -> None:
    """Everything that is not in the checkpoint is forgotten; what comes back is a new life of the trainer."""
    release_workers(state, job, "paused")
    job.incarnation += 1
    done = [step for _, step in job.evaluated if step <= job.global_step]
    job.evaluated.update({(job.incarnation, step): None for step in done})
    job.at_border, job.reset_wanted, job.trainer_waits = True, False, False
    job.checkpoint_due = job.borrows
    job.lost.clear()
    set_state(state, job, "paused", f"paused{stop.because}")
