"""What clients ask of jobs and nodes, as events for the core; what is wrong with it, before there is one.

Must not know sockets. Invariant: an event names a job that is open, or a node that is known.
"""

from collections.abc import Sequence
from difflib import get_close_matches

from broker.draining import standing
from broker.events import (
    CancelRequested,
    DrainRequested,
    PauseRequested,
    PriorityRequested,
    Request,
    ResumeRequested,
    UndrainRequested,
)
from broker.placement import node_of
from broker.state import State
from daemons.driver.queries import Queries
from daemons.driver.submission import Refusal, need_plain, need_priority
from digend.exitcodes import ExitCode
from digend.telemetry.stages import FINAL_STATES
from digend.wire.requests import Cancel, Drain, Pause, Resume, SetPriority, Undrain

OfJob = Cancel | Pause | Resume | SetPriority
OfNode = Drain | Undrain
Change = Cancel | Pause | Resume | SetPriority | Drain | Undrain


def event_of(asked: Change, queries: Queries, state: State) -> tuple[str, Request | None]:
    """The whole name of what it is about, and the event; None where there is nothing left to do. Raises Refusal."""
    need_plain(**{name: getattr(asked, name) for name in ("by", "why") if hasattr(asked, name)})
    if isinstance(asked, Drain):
        target = _target(asked.target, _known(state))
        return target, DrainRequested(target=target, by=asked.by, why=asked.why)
    if isinstance(asked, Undrain):
        target = _target(asked.target, list(dict.fromkeys([*state.drains, *_known(state)])))
        return target, UndrainRequested(target=target) if target in state.drains else None
    return asked.job, _of_job(asked, queries, state)


def _of_job(asked: OfJob, queries: Queries, state: State) -> Request | None:
    is_ = queries.job(asked.job).state
    over = is_ in FINAL_STATES
    job = state.jobs.get(asked.job)
    if isinstance(asked, Cancel):
        return None if over else CancelRequested(job=asked.job, after=asked.after, by=asked.by)
    if over or job is None:
        raise Refusal(ExitCode.USAGE, f"job {asked.job} is {is_}: it is over")
    if isinstance(asked, SetPriority):
        need_priority(asked.priority)
        return PriorityRequested(job=asked.job, priority=asked.priority)
    if job.stop is not None and job.stop.to == "cancelled":
        raise Refusal(ExitCode.USAGE, f"job {asked.job} is being cancelled")
    if isinstance(asked, Pause):
        return PauseRequested(job=asked.job, by=asked.by, why=asked.why)
    return ResumeRequested(job=asked.job) if job.stop is not None or job.hold else None


def _known(state: State) -> list[str]:
    """Nodes, then workers, also those that were there once."""
    workers = [*state.workers, *state.instances]
    nodes = [*(worker.node for worker in state.workers.values()), *map(node_of, state.instances)]
    return list(dict.fromkeys([*nodes, *workers]))


def _target(wanted: str, known: Sequence[str]) -> str:
    """The one name that is meant: whole, or the beginning of one node's, or of one worker's. Raises Refusal."""
    if not wanted:
        raise Refusal(ExitCode.USAGE, "an empty name is the beginning of every node's: name one")
    if wanted in known:
        return wanted
    begun = [name for name in known if name.startswith(wanted)]
    nodes = [name for name in begun if name == node_of(name)] or begun
    if len(nodes) == 1:
        return nodes[0]
    if nodes:
        raise Refusal(ExitCode.USAGE, f"several nodes begin with {wanted!r}: {', '.join(nodes[:6])}")
    near = get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else " (digenctl nodes lists them)"
    raise Refusal(ExitCode.NOT_FOUND, f"no node or worker {wanted!r}{hint}")


def state_of(asked: Change, name: str, queries: Queries, state: State) -> tuple[str, str]:
    """How what was asked about stands after it, and why."""
    if isinstance(asked, Drain | Undrain):
        return _standing_of(name, state)
    view = queries.view(state, name)
    return view.state, view.reason


def _standing_of(name: str, state: State) -> tuple[str, str]:
    """A worker may be drained with its node, and a node's worker by its own name."""
    drain = state.drains.get(name) or state.drains.get(node_of(name))
    if drain is None:
        left = [target for target in state.drains if node_of(target) == name]
        return "", f"drained by name: {', '.join(left)}" if left else ""
    workers = [worker for worker in state.workers.values() if name in (worker.name, worker.node)]
    busy = any(standing(state, worker) == "draining" for worker in workers)
    whole = "" if drain.target == name else f"with its node {drain.target} "
    return "draining" if busy else "drained", whole + drain.because.strip(": ")
