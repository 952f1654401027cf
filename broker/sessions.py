"""Sessions and liveness: who is there, who is slow, who is gone. Slow is not dead: torpid first, then lost.

Owns HELLO with inventory, heartbeats, lease expiry and what a driver restart means for leases.
"""

from broker.blobs import forget_told, free, pay
from broker.commands import End, Evict, RevokeLease, WakeAt
from broker.devices import observe
from broker.losses import broken_ranks, give_up_ranks, lose_lease, lose_worker, reset_step, restart, witnesses
from broker.outcomes import late
from broker.placement import job_of
from broker.ranks import disown, missing, returned
from broker.state import Job, Lease, State, Worker
from digend.wire.devices import DeviceState
from digend.wire.records import WorkerState
from digend.wire.workers import Hello


def driver_started(state: State, epoch: int) -> None:
    """Every worker is away until it says HELLO; its leases wait `rejoin_ns` for it."""
    state.epoch = epoch
    state.wake_at = None
    state.disk_full = ""  # the new driver looks for itself
    state.sessions.clear()
    forget_told(state)
    for worker in state.workers.values():
        worker.session, worker.torpid, worker.beat_ns = None, False, state.now
    for lease in state.leases.values():
        lease.progress_ns = state.now
    for job in state.active():
        if job.rank_set is not None:
            job.rank_set.until_ns = max(job.rank_set.until_ns, state.now + state.rejoin_ns)


def hello(state: State, session: str, hello: Hello) -> None:
    """A new process, or one we know that comes back with what it has in its hands."""
    known = state.workers.get(hello.name)
    refusal = _refusal(state, hello)
    if refusal:
        state.out.append(Evict(session=session, reason=refusal, fatal=True))
        return
    if known is not None and known.hello.instance == hello.instance:
        _return(state, known, session, hello)
        return
    if known is not None:
        lose_worker(state, known, "its process was replaced")
    worker = Worker(hello=hello, session=session, beat_ns=state.now)
    worker.prepared = {held.job: held.incarnation for held in hello.prepared if held.job in state.jobs}
    state.workers[hello.name] = worker
    state.roster += 1
    state.sessions[session] = hello.name
    _settle_accounts(state, worker, session)
    _tell(state, worker, "joined", hello.device)


def _refusal(state: State, hello: Hello) -> str:
    """Workers whose libraries differ give different numbers."""
    for worker in state.workers.values():
        if worker.name == hello.name or "reward" in (worker.role, hello.role):
            continue
        for package, theirs in hello.versions.numbers.items():
            ours = worker.hello.versions.numbers.get(package, theirs)
            if ours != theirs:
                return f"{hello.name} has {package} {theirs}, {worker.name} has {ours}: the numbers would differ"
    return ""


def _return(state: State, worker: Worker, session: str, hello: Hello) -> None:
    if worker.session is not None:
        state.sessions.pop(worker.session, None)
    worker.hello, worker.session, worker.beat_ns, worker.torpid = hello, session, state.now, False
    state.roster += 1
    state.sessions[session] = worker.name
    _settle_accounts(state, worker, session)
    worker.staging.clear()
    worker.retired = None
    staged = {(held.job, (held.incarnation, version)) for held in hello.prepared for version in held.staged}
    worker.staged = {key: None for key in worker.staged if key in staged}
    _tell(state, worker, "healed", "came back with its work")
    lease = state.leases.get(worker.lease or "")
    if lease is not None and lease.id not in {held.lease for held in hello.held}:
        lose_lease(state, lease, "it never reached the worker")
        lease = None
    job = job_of(state, worker)
    if job is not None and worker.role == "trainer":
        broken = returned(state, job, worker)
        if broken:
            restart(state, job, broken)
        elif worker.name == job.trainer:
            _compare_applied(state, job, worker, lease)


def _settle_accounts(state: State, worker: Worker, session: str) -> None:
    """What was decided while the worker could not hear: blobs to free, leases that ended, jobs that are over."""
    pay(state, worker)
    disown(state, worker)
    for held in worker.hello.held:
        known = state.leases.get(held.lease)
        if not held.done and (known is None or known.instance != worker.hello.instance):
            reason = "the lease ended while the worker was away"
            state.out.append(RevokeLease(session=session, lease=held.lease, reason=reason))
    for prepared in worker.hello.prepared:
        job = state.jobs.get(prepared.job)
        if job is None or not job.active:
            worker.prepared.pop(prepared.job, None)
            state.out.append(End(session=session, job=prepared.job))


def _compare_applied(state: State, job: Job, worker: Worker, lease: Lease | None) -> None:
    """The step goes on only if the trainer has accumulated exactly what the journal says (or has it in its hands)."""
    if lease is not None and lease.label in ("commit", "reset", "prepare"):
        return  # its result is on the way and says what became of the gradients
    if worker.prepared.get(job.id) != job.incarnation:
        return  # it will be prepared, from the checkpoint
    held = next((prepared for prepared in worker.hello.prepared if prepared.job == job.id), None)
    if held is None or (held.incarnation, held.version) != job.stamp:
        what = "nothing" if held is None else f"incarnation {held.incarnation}, version {held.version}"
        if lease is not None:
            lose_lease(state, lease, "the trainer does not hold what it belongs to")
        restart(state, job, f"the trainer holds {what}, the journal says {job.incarnation}, {job.version}")
        return
    known, reported = set(job.applied()), set(held.applied)
    doing = {lease.micro_batch.index} if lease and lease.label == "update" and lease.micro_batch else set()
    if not known <= reported <= known | doing:
        reset_step(state, job, f"the trainer reports {sorted(reported)} applied, the journal {sorted(known)}")


def _tell(state: State, worker: Worker, name: str, reason: str) -> None:
    job = job_of(state, worker)
    for each in [job] if job is not None else witnesses(state, worker):
        state.record(each, WorkerState(worker=worker.name, role=worker.role, state=name, reason=reason))
    if job is not None:
        if name == "joined":
            job.lost.pop(worker.name, None)
        if worker.lease is None and worker.idle_since is None:
            worker.idle_since = state.now


def beat(state: State, worker: Worker, lease_id: str | None, done: int, device: DeviceState | None = None) -> None:
    worker.beat_ns = state.now
    if worker.torpid:
        worker.torpid = False
        _tell(state, worker, "healed", "heartbeats again")
    lease = state.leases.get(lease_id or "")
    if lease is not None and lease.worker != worker.name:
        lease = None
    if lease is not None and done > lease.done:
        lease.done, lease.progress_ns = done, state.now
    observe(state, worker, lease, device)


def expire(state: State, late_ns: int) -> None:
    """Apply every deadline that has passed. `late_ns`: how long after the instant it asked for the core is run."""
    if late_ns > state.torpid_ns:
        # The driver slept (a suspended machine, a stopped process): nobody else's heartbeat is to blame.
        for worker in state.workers.values():
            worker.beat_ns = state.now
        for lease in state.leases.values():
            lease.progress_ns = state.now
        _wait_for_ranks(state, late_ns)
    for worker in list(state.workers.values()):
        silent = state.now - worker.beat_ns
        if worker.session is None:
            if silent >= state.rejoin_ns:
                lose_worker(state, worker, "it did not come back after the driver's restart")
        elif silent >= state.lost_ns:
            lose_worker(state, worker, f"no heartbeat for {silent / 1e9:.1f} s")
        elif silent >= state.torpid_ns and not worker.torpid:
            worker.torpid = True
            _tell(state, worker, "torpid", f"no heartbeat for {silent / 1e9:.1f} s")
    for lease in list(state.leases.values()):
        holder = state.workers.get(lease.worker)
        if holder is None or holder.session is None or lease.id not in state.leases:
            continue
        if state.now - lease.progress_ns >= lease.lease_ns:
            late(state, lease, f"{lease.label} made no progress for {lease.lease_ns / 1e9:.0f} s")
    for job in state.active():
        _expire_ranks(state, job)
        broken_ranks(state, job)


def _wait_for_ranks(state: State, longer_ns: int) -> None:
    for job in state.active():
        if job.rank_set is not None:
            job.rank_set.until_ns += longer_ns


def _expire_ranks(state: State, job: Job) -> None:
    """Ranks that have not met in time: who has said nothing is stuck, and lost."""
    ranks = job.rank_set
    if ranks is None or ranks.formed or state.now < ranks.until_ns:
        return
    silent = missing(ranks)
    for name in silent:
        worker = state.workers.get(name)
        if worker is not None:
            lose_worker(state, worker, f"it did not join the trainer ranks in {job.spec.rank_timeout_s:.0f} s")
    if not silent:
        give_up_ranks(state, job, "; ".join(ranks.failed.values()))


def wake(state: State) -> None:
    """Ask for a tick at the next deadline."""
    deadlines = []
    for worker in state.workers.values():
        if worker.session is None:
            deadlines.append(worker.beat_ns + state.rejoin_ns)
        else:
            deadlines.append(worker.beat_ns + (state.lost_ns if worker.torpid else state.torpid_ns))
    deadlines += [worker.stage_from_ns for worker in state.workers.values() if worker.stage_from_ns > state.now]
    for job in state.active():
        deadlines += [at for at in (job.switch_until_ns, job.checkpoint_from_ns, job.form_from_ns) if at > state.now]
        if job.rank_set is not None and not job.rank_set.formed:
            deadlines.append(job.rank_set.until_ns)
    deadlines += [lease.progress_ns + lease.lease_ns for lease in state.leases.values()]
    at = min(deadlines, default=None)
    if at is not None and at != state.wake_at:
        state.out.append(WakeAt(at_ns=max(at, state.now + 1)))
    state.wake_at = at


def persisted(state: State, job_id: str, next_seq: int) -> None:
    """The recorder has drawn an evaluation: free its pictures."""
    keep = []
    for kept in state.kept:
        if kept.job != job_id or kept.seq >= next_seq:
            keep.append(kept)
        else:
            free(state, kept.refs)
    state.kept = keep
