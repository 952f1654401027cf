"""What a request would change, asked of a copy of the core: true by construction, and nothing happens.

Owns what counts as a change that people are told: states and reasons of jobs, drains of workers. The core itself is
only read.
"""

from copy import deepcopy

from broker.core import Core
from broker.draining import standing
from broker.events import Event
from broker.state import State
from broker.waits import job_reason
from digend.wire.views import Change

Look = dict[tuple[str, str], tuple[str, str]]
"""(kind, name) -> (state, reason)"""


def rehearse(core: Core, now_ns: int, event: Event) -> Core:
    """A core to which the event has happened."""
    specs = {id(job.spec): job.spec for job in core.state.jobs.values()}
    plans = {id(group): group for job in core.state.jobs.values() for batch in job.rollout for group in batch.groups}
    copy = Core()
    # What never changes is shared, or a copy of a large job would take seconds.
    copy.state = deepcopy(core.state, {**specs, **plans})
    copy.step(max(now_ns, core.state.now), [event])
    return copy


def look_at(state: State) -> Look:
    """What people are told changes of."""
    seen: Look = {("job", job.id): (job.state, job_reason(state, job)) for job in state.jobs.values() if job.open}
    for worker in state.workers.values():
        drain = state.drain_of(worker)
        seen["worker", worker.name] = (standing(state, worker), drain.because.strip(": ") if drain else "")
    return seen


def changes(before: Look, state: State) -> tuple[Change, ...]:
    """What is otherwise now."""
    after = look_at(state)
    over = {key: state.jobs[key[1]] for key in before if key not in after and key[0] == "job"}
    after.update({key: (job.state, job.reason) for key, job in over.items()})
    return tuple(
        Change(kind=kind, name=name, before=before.get((kind, name), ("", ""))[0], after=now, reason=reason)
        for (kind, name), (now, reason) in after.items()
        if before.get((kind, name), ("", "")) != (now, reason)
    )
