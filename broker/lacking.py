"""Whom a job lacks, in words: who is not connected, or drained, though the job cannot go on without them.

Decides nothing. Must not know who has which worker now (`broker.order` says who waits for whom).
"""

from difflib import get_close_matches

from broker.placement import in_pool, involved, serves, trainers
from broker.ranks import bound, choose, shortage, taken
from broker.spec import JobSpec
from broker.state import Job, State, Worker


def lacking(state: State, job: Job) -> str:
    """Whose absence keeps the job from going on, in words; "" where everybody who is needed is there."""
    return _lacks_trainer(state, job) or _lacks_generator(state, job) or _lacks_reward(state, job)


def lacks_but_generators(state: State, job: Job) -> bool:
    """Whether somebody is absent whom a trainer that generates cannot replace."""
    return bool(_lacks_trainer(state, job) or _lacks_reward(state, job))


def _lacks_trainer(state: State, job: Job) -> str:
    if job.spec.ranks > 1:
        reserved = taken(state, job) if job.active else {}
        return "" if bound(state, job) or choose(state, job, reserved) else shortage(state, job, reserved)
    if job.trainer is not None and job.trainer in state.workers:
        return ""
    found = trainers(state, job)
    if found:
        return _all_drained(state, found, "trainer")
    if job.checkpoint_node:
        return f"no trainer of {job.checkpoint_node}, where its checkpoint is, is connected"
    return _nobody(state, job.spec, "trainer")


def _lacks_generator(state: State, job: Job) -> str:
    if job.colocated:
        return ""
    allowed = job.spec.generators
    found = [worker for worker in state.workers.values() if in_pool(job, worker)]
    if found:
        finishing = any(serves(state, job, worker) for worker in found)
        return "" if finishing else _all_drained(state, found, "generator")
    if allowed is None:
        return _nobody(state, job.spec, "generator")
    known = [worker.name for worker in state.workers.values() if worker.role == "generator"]
    return f"none of the generators {', '.join(allowed)} is connected{_nearest(allowed, known)}"


def _lacks_reward(state: State, job: Job) -> str:
    if job.spec.scoring != "dedicated":
        return ""
    found = [worker for worker in state.workers.values() if worker.role == "reward" and involved(job, worker)]
    if any(serves(state, job, worker) for worker in found):
        return ""
    return _all_drained(state, found, "reward process") if found else _nobody(state, job.spec, "reward process")


def _all_drained(state: State, workers: list[Worker], what: str) -> str:
    """Names the drains where all of these are drained."""
    drains = [state.drain_of(worker) for worker in workers]
    if not all(drains):
        return ""
    named = dict.fromkeys(f"{drain.target} is drained{drain.because}" for drain in drains if drain is not None)
    return f"no {what}: {', '.join(named)}"


def _nobody(state: State, spec: JobSpec, what: str) -> str:
    if spec.nodes is None:
        return f"no {what} is connected"
    known = list(dict.fromkeys(worker.node for worker in state.workers.values()))
    return f"no {what} of {', '.join(spec.nodes)} is connected{_nearest(spec.nodes, known)}"


def _nearest(wanted: tuple[str, ...], known: list[str]) -> str:
    """A hint for names that nobody who is connected has."""
    near = {name: get_close_matches(name, known, n=1) for name in wanted if name not in known}
    hints = [f"{found[0]} for {name}" if len(wanted) > 1 else found[0] for name, found in near.items() if found]
    return f"; did you mean {', '.join(hints)}?" if hints else ""
