"""What clients see of the core's state. Reads only; words for people are made here and in `broker.waits` only."""

from typing import TypedDict

from broker.blobs import refs_of
from broker.draining import standing
from broker.holds import Drain
from broker.microbatch import Fragment, Phase
from broker.placement import involved, job_of
from broker.ranks import followed
from broker.state import SECOND, Job, Lease, State, Worker
from broker.waits import NOTHING, absence, job_reason, sq_reason, uq_reason, worker_reason
from digend.wire.devices import DeviceState
from digend.wire.views import DrainView, JobView, NodeView, QueueItem, QueueView, StatusView


class _Kept(TypedDict):
    num_bytes: int
    held_by: tuple[str, ...]


def job_view(state: State, job: Job) -> JobView:
    return JobView(
        id=job.id,
        name=job.spec.name,
        state=job.state,
        reason=job_reason(state, job),
        user=job.user,
        priority=job.priority,
        parent=job.spec.origin.job if job.spec.origin else "",
        parent_step=job.spec.first_global_step,
        global_step=job.global_step,
        num_global_steps=job.spec.num_global_steps,
        policy_version=job.version,
        incarnation=job.incarnation,
        reward=job.reward_mean,
        submitted_ns=job.submitted_ns,
        started_ns=job.started_ns,
        finished_ns=job.finished_ns,
        ranks=job.spec.ranks,
    )


def job_views(state: State) -> tuple[JobView, ...]:
    return tuple(job_view(state, job) for job in state.jobs.values())


def node_views(state: State, now_ns: int) -> tuple[NodeView, ...]:
    return tuple(_node(state, worker, now_ns) for worker in state.workers.values())


def queue_view(state: State, now_ns: int) -> QueueView:
    """SQ by fragment, UQ by micro-batch, in order of service, each with what it waits for; job by job."""
    return QueueView(items=tuple(item for job in state.active() for item in _queued(job, now_ns)))


def _queued(job: Job, now_ns: int) -> list[QueueItem]:
    items = [
        QueueItem(
            queue="sq",
            job=job.id,
            rollout=batch.rollout,
            micro_batch=batch.index,
            version=batch.stamp[1] if batch.stamp else job.version,
            age_s=(now_ns - since) / SECOND,
            reason=f"fragment {fragment.index}, {fragment.num_to_score} samples: {sq_reason(job, place)}",
            **_kept([fragment]),
        )
        for place, ((batch, fragment), since) in enumerate(job.sq.waiting())
    ]
    return items + [
        QueueItem(
            queue="uq",
            job=job.id,
            rollout=batch.rollout,
            micro_batch=batch.index,
            version=batch.stamp[1] if batch.stamp else job.version,
            age_s=(now_ns - since) / SECOND,
            reason=uq_reason(job, batch, place),
            **_kept(batch.fragments),
        )
        for place, (batch, since) in enumerate(job.uq.waiting())
    ]


def status_view(state: State, now_ns: int, started_ns: int) -> StatusView:
    jobs = state.active()
    queue = queue_view(state, now_ns)
    scoring = [item for item in queue.items if item.queue == "sq"]
    updating = [item for item in queue.items if item.queue == "uq"]
    return StatusView(
        epoch=state.epoch,
        uptime_s=(now_ns - started_ns) / SECOND,
        nodes=node_views(state, now_ns),
        sq_depth=len(scoring),
        sq_oldest_s=max((item.age_s for item in scoring), default=None),
        sq_bytes=sum(item.num_bytes for item in scoring),
        uq_depth=len(updating),
        uq_oldest_s=max((item.age_s for item in updating), default=None),
        uq_bytes=sum(item.num_bytes for item in updating),
        job=job_view(state, jobs[0]) if jobs else None,
        jobs=tuple(job_view(state, job) for job in jobs),
        queued=sum(other.state == "queued" for other in state.jobs.values()),
        bubble_share=_bubble_share(state, jobs, now_ns),
        drains=tuple(_drain(drain, now_ns) for drain in state.drains.values()),
        problems=_problems(state, jobs, now_ns),
        now_ns=now_ns,
    )


def _kept(fragments: list[Fragment]) -> _Kept:
    held = [fragment for fragment in fragments if fragment.result is not None]
    return {
        "num_bytes": sum(ref.num_bytes for fragment in held for ref in refs_of(fragment.result)),
        "held_by": tuple(dict.fromkeys(fragment.worker for fragment in held if fragment.worker)),
    }


def _drain(drain: Drain, now_ns: int) -> DrainView:
    age_s = (now_ns - drain.since_ns) / SECOND
    return DrainView(target=drain.target, by=drain.by, why=drain.why, age_s=age_s)


def _bubble_share(state: State, jobs: list[Job], now_ns: int) -> float | None:
    """Closed intervals plus what is still open now, of all jobs that have workers."""
    total_ns = bubble_ns = 0
    for job in jobs:
        total_ns += job.worker_ns
        bubble_ns += job.bubble_ns
        for worker in state.workers.values() if job.step_start_ns else ():
            if involved(job, worker) and worker.idle_since is not None:
                total_ns += now_ns - worker.idle_since
                bubble_ns += (now_ns - worker.idle_since) if worker.idle_bubble else 0
    return bubble_ns / total_ns if total_ns else None


def _problems(state: State, jobs: list[Job], now_ns: int) -> tuple[str, ...]:
    found = []
    for worker in state.workers.values():
        silent = (now_ns - worker.beat_ns) / SECOND
        if worker.session is None:
            found.append(f"{worker.name}: not back since the driver's restart {silent:.0f} s ago")
        elif worker.torpid:
            found.append(f"{worker.name}: torpid, no heartbeat for {silent:.0f} s")
        elif not worker.able:
            found.append(f"{worker.name}: its GPU is lost and needs its box restarted; it gets no more work")
    if state.disk_full:
        found.append(f"disk full: {state.disk_full}")
    for job in jobs:
        found += [f"{name}: lost, {reason}" for name, reason in job.lost.items()]
    for job in state.jobs.values():
        absent = absence(state, job) if job.active or job.state == "queued" else ""
        if absent:
            found.append(f"job {job.id}{absent}")
    return tuple(found)


def _node(state: State, worker: Worker, now_ns: int) -> NodeView:
    job = job_of(state, worker)
    follows = followed(state, job, worker) if job is not None else None
    lease = state.leases.get(worker.lease or "") or follows
    name = "lost" if worker.session is None else "torpid" if worker.torpid else standing(state, worker)
    name = name or ("busy" if lease else "idle")
    drain = state.drain_of(worker)
    hello = worker.hello
    since = lease.start_ns if lease else worker.idle_since if job is not None else None
    ranks = job.ranks if job is not None and worker.role == "trainer" and job.spec.ranks > 1 else ()
    return NodeView(
        name=worker.name,
        role=worker.role,
        node=hello.node,
        state=name,
        doing=f"{'follows ' if follows else ''}{_doing(lease)}" if lease else worker.idle_cause or NOTHING,
        drained=drain.why or "no reason given" if drain else "",
        drained_by=drain.by if drain else "",
        drained_s=(now_ns - drain.since_ns) / SECOND if drain else None,
        device=hello.device,
        pid=hello.pid,
        session=worker.session or "",
        heartbeat_age_s=(now_ns - worker.beat_ns) / SECOND,
        tasks_done=worker.num_tasks,
        versions={"digend": hello.versions.digend, "python": hello.versions.python, **hello.versions.numbers},
        health=health(worker.device) if worker.device else "",
        device_state=worker.device,
        reason=worker_reason(state, worker, now_ns),
        task=lease.label if lease else "",
        for_s=None if since is None else (now_ns - since) / SECOND,
        cause="" if lease or since is None else worker.idle_cause,
        bubble=lease is None and since is not None and worker.idle_bubble,
        rank=ranks.index(worker.name) if ranks else None,
        ranks=len(ranks) or 1,
    )


def _doing(lease: Lease) -> str:
    batch = lease.micro_batch
    if batch is None:
        return f"{lease.label} of {lease.job}"
    if batch.purpose == "evaluate":
        return f"{lease.label} of prompt {batch.groups[0].prompt.text!r}"
    phase = "" if batch.phase is not Phase.UPDATING else f", global step {batch.global_step + 1}"
    return f"{lease.label} of micro-batch {batch.index}{phase}"


def health(device: DeviceState) -> str:
    """`1410/1980 MHz, thermal, 61.2 GiB free`; how old, where NVML does not answer."""
    if device.status == "lost":
        return "GPU lost"
    parts = [f"not read for {device.age_s:.0f} s"] if device.status == "stale" else []
    if device.sm_clock_mhz:
        parts.append(f"{device.sm_clock_mhz}/{device.max_sm_clock_mhz} MHz")
    parts += device.throttle
    if device.total_bytes:
        parts.append(f"{device.free_bytes / 2**30:.1f} GiB free")
    return ", ".join(parts)
