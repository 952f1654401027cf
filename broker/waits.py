"""Why something waits, in words: a job, a worker, a micro-batch. What the REASON column of every table says.

Reads only. Invariant: whatever does not run has a reason, and what runs has none.
"""

from broker.dispatch import involved
from broker.lifecycle import lacking
from broker.microbatch import MicroBatch
from broker.state import SECOND, Job, State, Worker

NOTHING = "nothing to do"

_CAUSES = {
    "generation": "waits for samples to be generated",
    "reward": "waits for rewards",
    "update": "waits for the trainer's updates",
    "weights": "waits for weights",
    "encoding of prompts": "waits for prompts to be encoded",
    "no sample to score": "waits for samples to score",
    "last checkpoint": "waits for the last checkpoint",
    "checkpoint": "waits for the checkpoint",
    "held": "its job is held",
}
"""Causes of idle time as `broker.dispatch` names them; others are words already."""


def job_reason(state: State, job: Job) -> str:
    """What keeps a job from going on, else what goes on beside its state, else how it ended."""
    if job.state == "queued":
        return state.disk_full or _before(state, job) or job.reason
    absent = lacking(state, job) if job is state.active() else ""
    return f"waits: {absent}" if absent else job.reason


def _before(state: State, job: Job) -> str:
    """Jobs run one at a time, so one that is queued waits for those before it."""
    open_ids = [other.id for other in state.jobs.values() if other.open]
    before = open_ids[: open_ids.index(job.id)]
    if len(before) > 2:
        return f"waits for {len(before)} jobs before it, {before[0]} runs"
    return f"waits for {' and '.join(before)} to end" if before else ""


def worker_reason(state: State, worker: Worker, now_ns: int) -> str:
    """Why a worker does nothing, or gets nothing more; "" while it has a task and all is well."""
    silent_s = (now_ns - worker.beat_ns) / SECOND
    if worker.session is None:
        return f"not back since the driver's restart {silent_s:.0f} s ago"
    if worker.torpid:
        return f"no heartbeat for {silent_s:.0f} s"
    if not worker.able:
        return "its GPU is lost: restart its process or box"
    if worker.lease is not None:
        return ""
    return _idle_reason(state, worker)


def _idle_reason(state: State, worker: Worker) -> str:
    job = state.active()
    if job is None:
        return f"{NOTHING}: no job runs"
    if not involved(job, worker):
        return f"{NOTHING}: job {job.id} does not use it"
    return _CAUSES.get(worker.idle_cause, worker.idle_cause) or NOTHING


def sq_reason(job: Job, num_ahead: int) -> str:
    """Of a fragment in SQ with so many before it."""
    scorer = "generator" if job.spec.scoring == "colocated" else "reward process"
    return f"waits for a free {scorer}" + (f", {num_ahead} before it" if num_ahead else "")


def uq_reason(job: Job, batch: MicroBatch, num_ahead: int) -> str:
    """Of a micro-batch in UQ with so many before it."""
    if batch.global_step != job.global_step:
        return f"waits for the commit of global step {batch.global_step}"
    return "waits for the trainer" + (f", {num_ahead} before it" if num_ahead else "")
