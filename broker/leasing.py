"""Leases and idle time: from dispatch to result every second of every worker is accounted for, once.

A worker is either under a lease (a `TaskRecord` when it ends well) or idle with a named cause (an `IdleRecord`).
"""

from broker.commands import AcknowledgeResult, RevokeLease, SendTask
from broker.microbatch import Fragment, MicroBatch
from broker.state import SECOND, Job, Lease, State, Worker
from broker.usage import Usage
from digend.wire.records import IdleRecord, TaskRecord
from digend.wire.tasks import Receipt, TaskBody

# Loading a model, an optimizer step or a checkpoint report no progress while they run.
_SLOW = {"prepare": 20, "commit": 10, "checkpoint": 10, "encode": 5}

SCORES = ("score", "evaluate_score")


def grant(
    state: State,
    job: Job,
    worker: Worker,
    label: str,
    task: TaskBody,
    micro_batch: MicroBatch | None = None,
    fragment: Fragment | None = None,
) -> Lease:
    """Lease a task to a free worker."""
    if worker.session is None or worker.lease is not None:
        raise AssertionError(f"{worker.name} is not free for {label}")
    state.num_leases += 1
    lease_s = job.spec.lease_s * _SLOW.get(label, 1)
    if label in SCORES and job.spec.score_lease_s is not None:
        lease_s = job.spec.score_lease_s
    lease = Lease(
        id=f"{state.epoch}.{state.num_leases}",
        worker=worker.name,
        instance=worker.hello.instance,
        job=job.id,
        label=label,
        task=task,
        start_ns=state.now,
        progress_ns=state.now,
        lease_ns=int(lease_s * SECOND),
        micro_batch=micro_batch,
        fragment=fragment,
    )
    end_idle(state, job, worker)
    worker.lease = lease.id
    state.leases[lease.id] = lease
    state.out.append(
        SendTask(
            session=worker.session,
            lease=lease.id,
            attempt=micro_batch.failures if micro_batch else job.failures.get(f"{label} on {worker.name}", 0),
            lease_s=lease_s,
            task=task,
        )
    )
    return lease


def release(state: State, lease: Lease) -> None:
    """The lease is over, well or not; its worker, where it still is, may get another."""
    state.leases.pop(lease.id, None)
    worker = state.workers.get(lease.worker)
    if worker is not None and worker.lease == lease.id:
        worker.lease = None
        worker.idle_since, worker.idle_cause, worker.idle_bubble = state.now, "", False


def revoke(state: State, lease: Lease, reason: str) -> None:
    """End a lease before its time; the worker's answer, if any, will find it gone."""
    worker = state.workers.get(lease.worker)
    if worker is not None and worker.session is not None and worker.hello.instance == lease.instance:
        state.out.append(RevokeLease(session=worker.session, lease=lease.id, reason=reason))
    forfeit(state, lease, reason)


def forfeit(state: State, lease: Lease, reason: str) -> None:
    """The lease came to nothing; its time is accounted for as such."""
    job = state.jobs[lease.job]
    count_worker_time(state, job, lease.worker, lease.start_ns, state.now)
    state.record(
        job,
        IdleRecord(
            worker=lease.worker,
            start_ns=lease.start_ns,
            end_ns=state.now,
            cause=f"lost {lease.label}: {reason}",
            bubble=False,
        ),
    )
    release(state, lease)


def acknowledge(state: State, worker: Worker, lease_id: str) -> None:
    if worker.session is not None:
        state.out.append(AcknowledgeResult(session=worker.session, lease=lease_id))


def record_task(
    state: State, job: Job, lease: Lease, receipt: Receipt, num_samples: int, switch_ns: int | None = None
) -> None:
    """One finished task in the job's stream, and in its worker's time. `switch_ns`: None where the trainer stayed in
    its mode, 0 where it is not known what the switch took."""
    worker = state.workers[lease.worker]
    worker.num_tasks += 1
    count_worker_time(state, job, lease.worker, lease.start_ns, state.now)
    job.clock.compute(lease.label, receipt.flops)
    batch = lease.micro_batch
    state.record(
        job,
        TaskRecord(
            worker=lease.worker,
            task=lease.label,
            lease=lease.id,
            start_ns=lease.start_ns,
            end_ns=state.now,
            receipt=receipt,
            global_step=batch.global_step if batch else job.global_step,
            version=batch.stamp[1] if batch and batch.stamp else job.version,
            micro_batch=batch.index if batch else -1,
            num_samples=num_samples,
            switched=switch_ns is not None,
            switch_ns=switch_ns or 0,
        ),
    )


def note_idle(state: State, job: Job, worker: Worker, cause: str, bubble: bool) -> None:
    """Say why a worker has nothing to do; a new cause ends the interval of the old one."""
    if worker.idle_since is not None and worker.idle_cause and worker.idle_cause != cause:
        end_idle(state, job, worker)
    if worker.idle_since is None:
        worker.idle_since = state.now
    worker.idle_cause, worker.idle_bubble = cause, bubble


def end_idle(state: State, job: Job, worker: Worker) -> None:
    since, cause = worker.idle_since, worker.idle_cause
    worker.idle_since, worker.idle_cause = None, ""
    if since is None or since >= state.now:
        return
    count_worker_time(state, job, worker.name, since, state.now, cause if worker.idle_bubble else "")
    state.record(
        job,
        IdleRecord(
            worker=worker.name,
            start_ns=since,
            end_ns=state.now,
            cause=cause or "dispatch",
            bubble=worker.idle_bubble,
        ),
    )


def count_worker_time(state: State, job: Job, worker: str, start_ns: int, end_ns: int, bubble: str = "") -> None:
    """For the share of time in bubbles, since the first global step began and of the open one, and for fair order
    between users. `bubble`: its cause."""
    state.usage[job.user] = state.usage.get(job.user, Usage()).plus(end_ns - start_ns, state.now)
    job.clock.spend(worker, start_ns, end_ns, bubble)
    if job.step_start_ns:
        job.worker_ns += end_ns - start_ns
        job.bubble_ns += end_ns - start_ns if bubble else 0
