"""Which workers a job may use, and which it has.

A job's pool is every generator (and reward process, where scoring is dedicated) of its nodes, and one trainer (or
several ranks), its own from start to end or pause. Must not know the order in which jobs start. Invariant: the pools
of jobs that have workers do not overlap, so that a worker serves one job at a time.
"""

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
        return job.trains(worker.name)
    return in_pool(job, worker)


def members(state: State, job: Job) -> list[Worker]:
    """The workers whose time is the job's, in the order in which they came. Looked for once for every change among
    workers and its trainers: a cluster has many that are not the job's, and this is asked several times a step."""
    seen = (state.roster, job.trainer, job.followers)
    if job.members_of != seen:
        job.members, job.members_of = [each for each in state.workers.values() if involved(job, each)], seen
    return job.members


def job_of(state: State, worker: Worker) -> Job | None:
    """The job that the worker serves."""
    return next((job for job in state.active() if involved(job, worker)), None)


def serves(state: State, job: Job, worker: Worker) -> bool:
    """Whether a worker of the job is offered its work. One that is drained is not, unless that same drain took the
    job's trainer: then the open global step is finished before the job pauses."""
    drain = state.drain_of(worker)
    if drain is None or job.trains(worker.name):
        return True
    return job.stop is not None and job.stop.drained == drain.target


def pool(state: State, job: Job) -> list[Worker]:
    """Live generators of the job that are offered work, by name."""
    found = [worker for worker in members(state, job) if in_pool(job, worker) and serves(state, job, worker)]
    return sorted(found, key=lambda worker: worker.name)


def trainer_of(state: State, job: Job) -> Worker | None:
    """The job's trainer (of several ranks, rank 0), while it is there."""
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
