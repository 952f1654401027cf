"""Drained nodes: no new leases for their workers; what they hold for others is kept until it is used.

Owns the drains, asked for by name of a node or of one worker; they stand until they are taken back, whoever comes and
goes meanwhile. Decides nothing about jobs.
"""

from broker.microbatch import Phase
from broker.placement import involved, serves
from broker.state import Job, State, Worker


def standing(state: State, worker: Worker) -> str:
    """`draining` while it works on or holds what others need, then `drained`; "" where it is not."""
    if state.drain_of(worker) is None:
        return ""
    return "draining" if worker.lease is not None or wanted(state, worker) else "drained"


def wanted(state: State, worker: Worker) -> str:
    """Who still needs what the worker holds, in words; "" where nobody does."""
    instance = worker.hello.instance
    for job in state.active():
        if job.trains(worker.name):
            return f"trains {job.id}"
        if any(instance == fragment.owner for batch in job.open_batches() for fragment in batch.fragments):
            return f"keeps samples of {job.id}"
        if any(ref.instance == instance for ref in job.conditions.values()):
            return f"keeps embeddings of {job.id}"
    recorded = any(each.role == "recorder" for each in state.workers.values())
    if recorded and any(ref.instance == instance for kept in state.kept for ref in kept.refs):
        return "keeps pictures for the recorder"
    return ""


def unneeded_embeddings(state: State, job: Job) -> list[str]:
    """Prompts whose embedding a drained worker holds and no open sample was made with: others encode them again."""
    if not state.drains:
        return []
    leaving = {
        worker.hello.instance
        for worker in state.workers.values()
        if involved(job, worker) and not serves(state, job, worker)
    }
    if not leaving:
        return []
    held = [uid for uid, ref in job.conditions.items() if ref.instance in leaving]
    used = {
        uid
        for batch in job.open_batches()
        if batch.phase not in (Phase.PENDING, Phase.APPLIED)
        for uid in (group.prompt.uid for group in batch.groups)
    }
    return [uid for uid in held if uid not in used]
