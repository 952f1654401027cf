"""Who starts next, and why each queued job does not: priority, then fair order, then first come.

Fair order: the job of the user whose jobs had least worker time lately goes first. A job that waits for workers of a
running one keeps them from jobs behind it, so it gets its turn; one that lacks somebody who is not connected, or
drained, keeps nothing from anybody. Nothing that runs is ever taken down for another (no preemption).
"""

from dataclasses import dataclass, field

from broker.lacking import lacking
from broker.placement import involved, node_of, overlap, trainers
from broker.ranks import choose, shortage
from broker.state import Job, State, Worker
from broker.usage import Usage

_NOTHING = Usage()


@dataclass(slots=True)
class _Line:
    """What the jobs looked at so far have or wait for."""

    ahead: list[Job] = field(default_factory=list)
    reserved: dict[str, Job] = field(default_factory=dict)
    """Trainers, by name."""


def in_order(state: State) -> list[Job]:
    """Queued jobs, the next first."""
    queued = [job for job in state.jobs.values() if job.state == "queued"]
    return sorted(queued, key=lambda job: (-job.priority, used_by(state, job.user)))


def num_before(state: State, job: Job) -> int:
    """Jobs that must end, or at least start, before this one: those that run where it may, and those before it."""
    if job.state != "queued":
        return 0
    line = in_order(state)
    others = [*state.active(), *line[: line.index(job)]]
    return sum(overlap(job.spec, other.spec) for other in others)


def used_by(state: State, user: str) -> int:
    """Worker nanoseconds of late."""
    return state.usage.get(user, _NOTHING).at(state.now)


def look(state: State) -> tuple[Job | None, dict[str, str]]:
    """The first queued job that can start now, and before it in line: why each cannot."""
    reasons: dict[str, str] = {}
    running = state.active()
    line = _Line(reserved={name: job for job in running for name in job.ranks})
    for job in in_order(state):
        reason = state.disk_full or lacking(state, job)
        if not reason:
            reason = _waits(state, job, running, line)
            if not reason:
                return job, reasons
            line.ahead.append(job)
            line.reserved.update({worker.name: job for worker in free_trainers(state, job, line.reserved)})
        reasons[job.id] = reason
    return None, reasons


def _waits(state: State, job: Job, running: list[Job], line: _Line) -> str:
    """The reason in words, without figures: a new reason is a record of the job."""
    here = next((other for other in running if overlap(job.spec, other.spec)), None)
    before = next((other for other in line.ahead if overlap(job.spec, other.spec)), None)
    parts = [f"waits for {_shared(state, job, here)}: {_at(here, 'runs')}"] if here is not None else []
    parts += [_behind(state, job, before)] if before is not None else []
    if parts:
        return "; ".join(parts)
    if free_trainers(state, job, line.reserved):
        return ""
    if job.spec.ranks > 1:
        return shortage(state, job, line.reserved)
    taken = [worker for worker in trainers(state, job) if state.drain_of(worker) is None]
    owner = line.reserved[taken[0].name]
    return f"waits for {taken[0].name}: {_at(owner, 'trains')}" if owner.active else _behind(state, job, owner)


def _at(other: Job, does: str) -> str:
    """What another job does where this one would."""
    if other.state != "held":
        return f"{other.id} {does} there"
    return f"{other.id} is held there; resume or cancel it" if other.hold else f"{other.id} is held there"


def free_trainers(state: State, job: Job, reserved: dict[str, Job]) -> list[Worker]:
    """A trainer for the job, the first by name; or all its ranks. None where there are too few."""
    if job.spec.ranks > 1:
        return choose(state, job, reserved)
    free = [worker for worker in trainers(state, job) if worker.name not in reserved and state.drain_of(worker) is None]
    return sorted(free, key=lambda worker: worker.name)[:1]


def _shared(state: State, job: Job, other: Job) -> str:
    """Where the two meet: nodes of workers that are there, else names they both give."""
    serving = [worker for worker in state.workers.values() if worker.role != "trainer" and involved(other, worker)]
    nodes = [worker.node for worker in serving if involved(job, worker)]
    if not nodes and job.spec.generators:
        nodes = [node_of(name) for name in job.spec.generators]
    elif not nodes:
        nodes = [node for spec in (job.spec, other.spec) for node in spec.nodes or ()]
    return ", ".join(sorted(dict.fromkeys(nodes))) or "the workers"


def _behind(state: State, job: Job, other: Job) -> str:
    if other.priority != job.priority:
        return f"priority {other.priority} of {other.id} is before it"
    if other.user != job.user and used_by(state, other.user) < used_by(state, job.user):
        return f"{other.id} of {other.user or 'nobody'} is before it, who used less worker time lately"
    return f"{other.id} was submitted before it"
