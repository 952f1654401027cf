"""The trainers of a job that act as one: who they are, and how they meet.

Owns the choice of ranks and their forming: rank 0 opens a store, all join, and only then has the job a trainer. Must
not know what losing a rank means for the job (`broker.losses`). Invariant: no two epochs of a job's ranks have the same
number, and an answer to an older one changes nothing.
"""

from collections.abc import Container

from broker.commands import AskJoin, AskLeave, AskStore
from broker.events import RankBroke, RankReady, StoreReady
from broker.leasing import end_idle
from broker.placement import on_nodes, trainers
from broker.state import SECOND, Job, Lease, RankSet, State, Worker
from digend.wire.ranks import Ranks
from digend.wire.records import Notice

GRACE_NS = 10 * SECOND
"""Past the ranks' own time limit: whoever has said nothing by then is stuck."""

AGAIN_NS = SECOND
"""After a failure, before they meet again: the driver often notices a lost process a moment after its peers."""


_TOGETHER = ("prepare", "update", "commit", "reset", "checkpoint")
_IF_SHARDED = ("generate", "assist", "evaluate")
"""Tasks that all ranks work on, and those that they do where a forward pass needs the shards of all."""


def usable(state: State, job: Job, reserved: Container[str] = ()) -> list[Worker]:
    """Trainers that could be ranks of the job now, by node and slot."""
    found = [
        worker
        for worker in state.workers.values()
        if worker.role == "trainer"
        and worker.able
        and worker.name not in reserved
        and on_nodes(job.spec, worker.node)
        and state.drain_of(worker) is None
    ]
    return sorted(found, key=_place)


def choose(state: State, job: Job, reserved: Container[str]) -> list[Worker]:
    """Rank by rank, those of one node next to each other; none where they are too few.

    Rank 0 is on the node of the newest checkpoint; it stays who it was, else the node with most trainers has it.
    """
    free = usable(state, job, reserved)
    heads = [worker for worker in free if job.checkpoint_node in ("", worker.node)]

    def order(head: Worker) -> tuple[object, ...]:
        near = sum(worker.node == head.node for worker in free)
        return head.name != job.trainer, -min(near, job.spec.ranks), _place(head)

    for head in sorted(heads, key=order):
        others = [worker for worker in free if worker is not head and _can_meet(head, worker)]
        others.sort(key=lambda worker: (not job.trains(worker.name), worker.node != head.node, _place(worker)))
        if len(others) >= job.spec.ranks - 1:
            chosen = others[: job.spec.ranks - 1]
            return [head, *sorted(chosen, key=lambda worker: (worker.node != head.node, _place(worker)))]
    return []


def shortage(state: State, job: Job, reserved: Container[str] = ()) -> str:
    """Why `choose` finds too few, in words."""
    free = usable(state, job, reserved)
    parts = [f"waiting for {job.spec.ranks} trainers, {len(free)} free"]
    drained = [state.drain_of(worker) for worker in trainers(state, job)]
    parts += dict.fromkeys(f"{drain.target} is drained{drain.because}" for drain in drained if drain is not None)
    if len(free) >= job.spec.ranks:
        if not any(job.checkpoint_node in ("", worker.node) for worker in free):
            parts.append(f"none of {job.checkpoint_node}, where its checkpoint is")
        else:
            closed = [worker.name for worker in free if not worker.hello.interface]
            parts.append(f"no [trainer] interface is set for {', '.join(closed)}, so other boxes do not reach them")
    return "; ".join(parts)


def bound(state: State, job: Job) -> bool:
    """Whether all its ranks are there. One that is away for a restart of the driver is waited for, and so is one that
    is slow while they meet or load the model: an epoch has a deadline of its own."""
    members = [state.workers.get(name) for name in job.ranks]
    begun = job.rank_set is not None
    return len(members) == job.spec.ranks and all(
        worker is not None and (begun or worker.able or worker.session is None) for worker in members
    )


def taken(state: State, job: Job) -> dict[str, Job]:
    """Trainers of other jobs that have workers."""
    return {name: other for other in state.active() if other is not job for name in other.ranks}


def bind(state: State, job: Job, chosen: list[Worker]) -> None:
    """These are its ranks from now on."""
    names = [worker.name for worker in chosen]
    for worker in state.workers.values():
        if worker.name in names and not job.trains(worker.name):
            worker.idle_since = state.now
        elif worker.name not in names and job.trains(worker.name):
            end_idle(state, job, worker)
    job.trainer, job.followers = names[0], tuple(names[1:])


def followed(state: State, job: Job, worker: Worker) -> Lease | None:
    """The lease of rank 0 that another rank works on too; None where that one idles, though rank 0 may not."""
    leader = state.workers.get(job.trainer or "") if worker.name in job.followers else None
    lease = state.leases.get(leader.lease or "") if leader is not None else None
    sharded = job.spec.replicas < job.spec.ranks
    together = lease is not None and (lease.label in _TOGETHER or (sharded and lease.label in _IF_SHARDED))
    return lease if together else None


def leads(job: Job, worker: Worker) -> bool:
    """Whether a trainer is given the job's tasks: the only one, or rank 0 once all have joined."""
    if job.spec.ranks == 1:
        return True
    return worker.name == job.trainer and job.rank_set is not None and job.rank_set.formed


def form(state: State, job: Job) -> str:
    """Let the ranks meet, where nothing is in the way. Why they have not met yet, in words; "" once they have."""
    if job.rank_set is None and state.now >= job.form_from_ns:
        members = [state.workers[name] for name in job.ranks]
        if not all(worker.able for worker in members):
            return shortage(state, job)
        job.rank_epoch += 1
        job.rank_set = RankSet(epoch=job.rank_epoch, members=job.ranks, until_ns=_until(state, job))
        _ask_store(state, job, job.rank_set)
    met = job.rank_set is not None and job.rank_set.formed
    return "" if met else f"{job.spec.ranks} trainer ranks meet"


def opened(state: State, event: StoreReady) -> None:
    job, worker = state.jobs.get(event.job), state.by_session(event.session)
    ranks = _awaited(job, worker, event.epoch)
    if job is None or worker is None or ranks is None or worker.name != ranks.members[0] or ranks.joined:
        return
    ranks.store, ranks.until_ns = event.store, _until(state, job)
    for name in ranks.members:
        _ask_join(state, job, ranks, name)


def joined(state: State, event: RankReady) -> None:
    job, worker = state.jobs.get(event.job), state.by_session(event.session)
    ranks = _awaited(job, worker, event.epoch)
    if job is not None and worker is not None and ranks is not None:
        _join(state, job, ranks, worker)


def failed(state: State, event: RankBroke) -> tuple[Job, str] | None:
    """Of whom the ranks are to be given up, and why. While they meet it is waited for what the others say."""
    job, worker = state.jobs.get(event.job), state.by_session(event.session)
    ranks = _awaited(job, worker, event.epoch)
    if job is None or worker is None or ranks is None:
        return None
    ranks.failed[worker.name] = event.error.message
    rank = ranks.members.index(worker.name)
    if ranks.formed:
        return job, f"rank {rank} ({worker.name}): {event.error.message}"
    if len(ranks.failed) + len(ranks.joined) >= len(ranks.members) or not ranks.store:
        return job, f"rank {rank} ({worker.name}) could not join: {event.error.message}"
    return None


def returned(state: State, job: Job, worker: Worker) -> str:
    """A rank is back after a restart of the driver: what it missed is said again. Why its ranks are broken, else ""."""
    ranks = job.rank_set
    if ranks is None or worker.name not in ranks.members:
        return ""
    if worker.hello.ranks.get(job.id) == ranks.epoch:
        _join(state, job, ranks, worker)
    elif worker.name in ranks.joined:
        return f"rank {ranks.members.index(worker.name)} ({worker.name}) has left the others"
    elif ranks.store:
        _ask_join(state, job, ranks, worker.name)
    elif worker.name == ranks.members[0]:
        _ask_store(state, job, ranks)
    return ""


def missing(ranks: RankSet) -> list[str]:
    """Who has said nothing."""
    asked = ranks.members if ranks.store else ranks.members[:1]
    return [name for name in asked if name not in ranks.joined and name not in ranks.failed]


def dissolve(state: State, job: Job, reason: str) -> None:
    """All leave at once, whatever they do."""
    ranks, job.rank_set = job.rank_set, None
    for name in ranks.members if ranks is not None else ():
        worker = state.workers.get(name)
        if ranks is not None and worker is not None and worker.session is not None:
            state.out.append(AskLeave(session=worker.session, job=job.id, epoch=ranks.epoch, reason=reason))


def disown(state: State, worker: Worker) -> None:
    """A trainer is back that is one of ranks that are no more."""
    for name, epoch in worker.hello.ranks.items():
        job = state.jobs.get(name)
        ranks = job.rank_set if job is not None else None
        if worker.session is not None and (ranks is None or ranks.epoch != epoch or worker.name not in ranks.members):
            reason = "these ranks are no more"
            state.out.append(AskLeave(session=worker.session, job=name, epoch=epoch, reason=reason))


def _awaited(job: Job | None, worker: Worker | None, epoch: int) -> RankSet | None:
    """The ranks that an answer is about, where they still are."""
    ranks = job.rank_set if job is not None else None
    known = ranks is not None and worker is not None and ranks.epoch == epoch and worker.name in ranks.members
    return ranks if known else None


def _join(state: State, job: Job, ranks: RankSet, worker: Worker) -> None:
    if worker.name in ranks.joined:
        return
    ranks.joined[worker.name] = None
    if ranks.formed:
        names = ", ".join(ranks.members)
        message = f"{len(ranks.members)} trainer ranks have met (epoch {ranks.epoch}): {names}"
        state.record(job, Notice(level="info", message=message))


def _ask_store(state: State, job: Job, ranks: RankSet) -> None:
    worker = state.workers[ranks.members[0]]
    if worker.session is not None:
        state.out.append(AskStore(session=worker.session, job=job.id, epoch=ranks.epoch))


def _ask_join(state: State, job: Job, ranks: RankSet, name: str) -> None:
    worker, spec = state.workers.get(name), job.spec
    if worker is None or worker.session is None:
        return
    place = Ranks(
        epoch=ranks.epoch,
        rank=ranks.members.index(name),
        size=spec.ranks,
        replicas=spec.replicas,
        store=ranks.store,
        timeout_s=spec.rank_timeout_s,
    )
    state.out.append(AskJoin(session=worker.session, job=job.id, ranks=place))


def _until(state: State, job: Job) -> int:
    return state.now + int(job.spec.rank_timeout_s * SECOND) + GRACE_NS


def _place(worker: Worker) -> tuple[str, int, str]:
    """Slot 10 comes after slot 9."""
    return worker.node, len(worker.name), worker.name


def _can_meet(one: Worker, other: Worker) -> bool:
    """Ranks of one box meet on its loopback; of two boxes only where both listen elsewhere too."""
    same = (one.hello.host or one.node) == (other.hello.host or other.node)
    return same or bool(one.hello.interface and other.hello.interface)
