"""Why something waits, in words: a job, a worker, a micro-batch. What the REASON column of every table says.

Reads only. Invariant: whatever does not run has a reason, and what runs has none.
"""

from broker.draining import wanted
from broker.generation import prepared
from broker.lacking import lacking, lacks_but_generators
from broker.microbatch import MicroBatch
from broker.placement import job_of, trainer_of
from broker.ranks import followed
from broker.standing_in import stands_in
from broker.state import SECOND, Job, State, Worker
from broker.stopping import plan

NOTHING = "nothing to do"

_CAUSES = {
    "generation": "waits for samples to be generated",
    "reward": "waits for rewards",
    "update": "waits for the trainer's updates",
    "weights": "waits for weights",
    "encoding of prompts": "waits for prompts to be encoded",
    "no sample to score": "waits for samples to score",
    "no room for tensors": "has no room for more tensors: waits until the trainer has used some",
    "last checkpoint": "waits for the last checkpoint",
    "checkpoint": "waits for the checkpoint",
    "held": "its job is held",
}
"""Causes of idle time as `broker.dispatch` names them; others are words already."""


def job_reason(state: State, job: Job) -> str:
    """What keeps a job from going on, else what goes on beside its state, else how it ended; and when it will stop.

    Why it is held comes first: nobody's coming lets it go on.
    """
    absent = lacking(state, job) if job.active else ""
    if job.state == "held":
        parts = [job.reason, _in_want_of(absent) if absent else ""]
    elif absent and not goes_on_without(state, job):
        parts = [_in_want_of(absent)]
    else:
        parts = [job.reason, _stood_in(absent) if absent else "", *_loading_late(state, job)]
    parts.append(plan(job))
    return "; ".join(part for part in parts if part)


def _loading_late(state: State, job: Job) -> list[str]:
    """Workers that load the job and wait for something outside, such as a reward's service: who, and what for."""
    leases = [lease for lease in state.leases.values() if lease.job == job.id and lease.label == "prepare"]
    workers = [state.workers[lease.worker] for lease in leases if lease.worker in state.workers]
    late = [f"{worker.name} {worker.problem}" for worker in workers if worker.problem]
    return late if len(late) < 2 else [late[0], f"and {len(late) - 1} more like it"]


def absence(state: State, job: Job) -> str:
    """Of a job that has workers or is queued: who is not there, and what that means for it; "" where all are."""
    absent = lacking(state, job)
    if not absent:
        return ""
    return f": {_stood_in(absent)}" if goes_on_without(state, job) else f" {_in_want_of(absent)}"


def goes_on_without(state: State, job: Job) -> bool:
    """Whether the trainer generates, so that a job that lacks generators does not wait for one."""
    trainer = trainer_of(state, job)
    if job.state != "running" or trainer is None or trainer.session is None or lacks_but_generators(state, job):
        return False
    return prepared(job, trainer) and stands_in(state, job, trainer)


def _stood_in(absent: str) -> str:
    return f"{absent}; the trainer generates"


def _in_want_of(absent: str) -> str:
    """`waits: no trainer is connected`, or what says so by itself."""
    return absent if absent.startswith("waiting for") else f"waits: {absent}"


def worker_reason(state: State, worker: Worker, now_ns: int) -> str:
    """Why a worker does nothing, or gets nothing more; "" while it has a task and all is well."""
    silent_s = (now_ns - worker.beat_ns) / SECOND
    if worker.session is None:
        return f"not back since the driver's restart {silent_s:.0f} s ago"
    if worker.torpid:
        return f"no heartbeat for {silent_s:.0f} s"
    if not worker.able:
        return "its GPU is lost: restart its process or box"
    drain = state.drain_of(worker)
    if drain is not None:
        return "; ".join(part for part in (f"drained{drain.because}", wanted(state, worker)) if part)
    job = job_of(state, worker)
    lease = state.leases.get(worker.lease or "")
    if lease is not None and lease.label == "prepare" and worker.problem:
        return worker.problem
    if worker.lease is not None or (job is not None and followed(state, job, worker)):
        return ""
    return _idle_reason(state, worker)


def _idle_reason(state: State, worker: Worker) -> str:
    if worker.role == "recorder":
        return "waits for records"
    running = state.active()
    if not running:
        return f"{NOTHING}: no job runs"
    if job_of(state, worker) is None:
        which = f"job {running[0].id} does not use it" if len(running) == 1 else "no job that runs uses it"
        return f"{NOTHING}: {which}"
    return _CAUSES.get(worker.idle_cause, worker.idle_cause) or NOTHING


def sq_reason(job: Job, num_ahead: int) -> str:
    """Of a fragment in SQ with so many before it."""
    scorer = "generator" if job.spec.scoring == "colocated" else "reward process"
    return f"waits for a free {scorer}" + (f", {num_ahead} before it" if num_ahead else "")


def uq_reason(job: Job, batch: MicroBatch, num_ahead: int) -> str:
    """Of a micro-batch in UQ with so many before it."""
    if batch.global_step != job.global_step:
        return f"waits for the commit of global step {batch.global_step}"
    if job.state == "preparing" and job.reason:
        return f"waits for the trainer: {job.reason}"
    return "waits for the trainer" + (f", {num_ahead} before it" if num_ahead else "")
