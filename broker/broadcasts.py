"""A policy version sent to several workers at once: who they are, and what becomes of those that got nothing.

Owns the choice of members. Must not know how the bytes travel: whoever got nothing pulls the version. Invariant: a
version is broadcast once at most, to those that are asked to stage it at the same instant as the first of them; each
broadcast of a job has an epoch of its own.
"""

from broker.commands import StageWeights
from broker.events import WeightsStaged
from broker.placement import trainer_of
from broker.state import Job, State, Worker
from digend.wire.broadcasts import Broadcast
from digend.wire.records import Notice
from digend.wire.refs import WeightsRef


def convene(state: State, job: Job, weights: WeightsRef, asked: list[Worker]) -> dict[str, Broadcast]:
    """The places of the trainer and of those among `asked` that it reaches, by name; empty where all are to pull."""
    trainer, stamp = trainer_of(state, job), (weights.incarnation, weights.version)
    if not weights.store or job.broadcast.of == stamp or trainer is None or not trainer.able:
        return {}
    reached = [worker for worker in asked if worker.able and _reaches(trainer, worker)]
    for worker in asked:
        _say_beyond_reach(state, job, trainer, worker)
    if not reached:
        return {}
    job.broadcast.epoch += 1
    job.broadcast.of = stamp
    members = job.broadcast.members = (trainer.name, *(worker.name for worker in reached))
    return {
        name: Broadcast(epoch=job.broadcast.epoch, rank=rank, members=members, timeout_s=job.spec.publish_timeout_s)
        for rank, name in enumerate(members)
    }


def give_up(state: State, job: Job, lost: Worker) -> None:
    """A member is gone: those that do not have its version yet are to pull it, at once."""
    members, stamp = job.broadcast.members, job.broadcast.of
    weights = job.published.get(stamp[1]) if stamp is not None else None
    if lost.name not in members or weights is None or (weights.incarnation, weights.version) != stamp:
        return
    job.broadcast.members = ()
    left = [state.workers[name] for name in members if name in state.workers]
    if any((job.id, stamp) in worker.staging for worker in left):
        for worker in left:
            if worker.session is not None and (job.trains(worker.name) or (job.id, stamp) in worker.staging):
                state.out.append(StageWeights(session=worker.session, weights=weights))


def fell_back(state: State, job: Job, worker: Worker, event: WeightsStaged) -> None:
    """A broadcast came to nothing on a worker, which has pulled the version."""
    job.count("broadcast_fallbacks")
    message = f"policy version {event.version} was pulled by {worker.name}, its broadcast failed: {event.fell_back}"
    state.record(job, Notice(level="warning", message=message))


def _reaches(trainer: Worker, worker: Worker) -> bool:
    """All members of a broadcast reach each other: on the loopback of one box, or each by an interface."""
    if trainer.hello.interface:
        return bool(worker.hello.interface)
    return (trainer.hello.host or trainer.node) == (worker.hello.host or worker.node)


def _say_beyond_reach(state: State, job: Job, trainer: Worker, worker: Worker) -> None:
    if _reaches(trainer, worker) or worker.name in job.broadcast.beyond_reach:
        return
    job.broadcast.beyond_reach[worker.name] = None
    section, where = ("generator", worker) if trainer.hello.interface else ("trainer", trainer)
    message = (
        f"policy versions are pulled by {worker.name}, not broadcast to it: no `interface` is set in [{section}] of "
        f"the settings of {where.node}, so torch.distributed listens on its loopback only"
    )
    state.record(job, Notice(level="warning", message=message))
