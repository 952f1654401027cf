"""Which workers a job may use, which it has, and whom it lacks.

A job's pool is every generator (and reward process, where scoring is dedicated) of its nodes, and one trainer, its own
from start to end or pause. Must not know the order in which jobs start. Invariant: the pools of jobs that have workers
do not overlap, so that a worker serves one job at a time.
"""

from difflib import get_close_matches

from broker.spec import JobSpec
from broker.state import Job, State, Worker


def on_nodes(spec: JobSpec, node: str) -> bool:
    return spec.nodes is None or node in spec.nodes


def may_generate(spec: JobSpec, name: str, node: str) -> bool:
    """Whether a generator of this name is one of the job's."""
    return on_nodes(spec, node) and (spec.generators is None or name in spec.generators)


def in_pool(job: Job, worker: Worker) -> bool:
    """Whether the worker is one of the job's generators (on a colocated job, its trainer is)."""
    if job.colocated:
        return worker.name == job.trainer
    return worker.role == "generator" and may_generate(job.spec, worker.name, worker.node)


def involved(job: Job, worker: Worker) -> bool:
    """Whether the worker's time is the job's, while the job has workers."""
    if worker.role == "reward":
        return job.spec.scoring == "dedicated" and on_nodes(job.spec, worker.node)
    if worker.role == "trainer":
        return worker.name == job.trainer
    return in_pool(job, worker)


def job_of(state: State, worker: Worker) -> Job | None:
    """The job that the worker serves."""
    return next((job for job in state.active() if involved(job, worker)), None)


def serves(state: State, job: Job, worker: Worker) -> bool:
    """Whether a worker of the job is offered its work. One that is drained is not, unless that same drain took the
    job's trainer: then the open global step is finished before the job pauses."""
    drain = state.drain_of(worker)
    if drain is None or worker.name == job.trainer:
        return True
    return job.stop is not None and job.stop.drained == drain.target


def pool(state: State, job: Job) -> list[Worker]:
    """Live generators of the job that are offered work, by name."""
    members = [worker for worker in state.workers.values() if in_pool(job, worker) and serves(state, job, worker)]
    return sorted(members, key=lambda worker: worker.name)


def trainer_of(state: State, job: Job) -> Worker | None:
    """The job's trainer, while it is there."""
    return state.workers.get(job.trainer or "")


def overlap(one: JobSpec, other: JobSpec) -> bool:
    """Whether two jobs may want the same generator or reward process."""
    rewards = one.scoring == other.scoring == "dedicated" and _nodes_meet(one, other)
    return rewards or _generators_meet(one, other)


def _nodes_meet(one: JobSpec, other: JobSpec) -> bool:
    return one.nodes is None or other.nodes is None or any(node in other.nodes for node in one.nodes)


def _generators_meet(one: JobSpec, other: JobSpec) -> bool:
    named = one.generators if one.generators is not None else other.generators
    if () in (one.generators, other.generators):
        return False
    if named is None:
        return _nodes_meet(one, other)
    return any(all(may_generate(spec, name, node_of(name)) for spec in (one, other)) for name in named)


def node_of(worker: str) -> str:
    """The node in a worker's name."""
    return worker.partition("/")[0]


def trainers(state: State, job: Job) -> list[Worker]:
    """Those that could be the job's, drained or taken ones too. A checkpoint lies on the node that wrote it, and the
    job goes on there."""
    return [
        worker
        for worker in state.workers.values()
        if worker.role == "trainer" and on_nodes(job.spec, worker.node) and job.checkpoint_node in ("", worker.node)
    ]


def lacking(state: State, job: Job) -> str:
    """Whose absence keeps the job from going on, in words; "" where everybody who is needed is there."""
    return _lacks_trainer(state, job) or _lacks_generator(state, job) or _lacks_reward(state, job)


def _lacks_trainer(state: State, job: Job) -> str:
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
