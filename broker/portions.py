"""Who scores which samples of a fragment: its portions, from SQ to leases and back.

What a generator made is one portion, for the others of the pool have fragments of their own. What the trainer made
(TAG) is cut for all generators by how fast each scores, so that it takes the pool's time and not that of one of them;
one that is free earlier takes what was cut for another. Reward processes take a fragment each, or `score_samples` of
one, so that several work on a fragment at once and less is lost with one of them. Invariant: a sample
without a score is in exactly one portion of its generated fragment, which waits or is leased.
"""

from broker import requests
from broker.estimates import Estimate, speeds
from broker.leasing import grant, revoke
from broker.microbatch import Fragment, MicroBatch, Portion, SampleKey
from broker.placement import pool
from broker.state import Job, State, Worker
from broker.work import quotas


def queue_scores(state: State, job: Job, batch: MicroBatch, fragment: Fragment, *, assisted: bool) -> None:
    """It is generated; samples that came without a score enter SQ."""
    keys = fragment.unscored
    if job.spec.scoring == "colocated":
        portions = _cut(state, job, keys) if assisted else [Portion(keys=tuple(keys))]
    else:
        # What evaluation tells of a whole group is told by whoever scores all of it.
        size = (job.spec.score_samples if batch.purpose == "train" else 0) or len(keys)
        portions = [Portion(keys=tuple(keys[at : at + size])) for at in range(0, len(keys), size)]
    for portion in portions:
        requeue(state, job, batch, fragment, portion)


def _cut(state: State, job: Job, keys: list[SampleKey]) -> list[Portion]:
    members = [worker for worker in pool(state, job) if worker.able]
    if not members:
        return [Portion(keys=tuple(keys))]
    known = {worker.name: worker.tasks.get((job.id, "score"), Estimate()) for worker in members}
    portions, at = [], 0
    for name, count in quotas(len(keys), speeds(known)).items():
        if count:
            portions.append(Portion(keys=tuple(keys[at : at + count]), worker=name))
        at += count
    return portions


def requeue(state: State, job: Job, batch: MicroBatch, fragment: Fragment, portion: Portion) -> None:
    """Its samples wait for a score, for the first time or again. A fragment is in SQ once."""
    if not fragment.to_score:
        version = batch.stamp[1] if batch.stamp else 0
        job.sq.push((batch, fragment), version, batch.global_step, state.now)
    fragment.to_score[portion.name] = portion


def offer_scoring(state: State, job: Job, worker: Worker) -> bool:
    """The portion that was cut for it, else another one, of the first fragment in SQ."""
    head = job.sq.peek()
    if head is None:
        return False
    batch, fragment = head
    name = worker.name if worker.name in fragment.to_score else next(iter(fragment.to_score))
    portion = fragment.to_score.pop(name)
    if not fragment.to_score:
        job.sq.pop()
    label = "evaluate_score" if batch.purpose == "evaluate" else "score"
    task = requests.score(job, batch, fragment, portion.keys)
    lease = grant(state, job, worker, label, task, batch, fragment)
    fragment.being_scored[lease.id] = portion
    return True


def withdraw(state: State, job: Job, fragment: Fragment, why: str) -> None:
    """Nobody is to score it any more: its leases end, and it leaves SQ."""
    for name in list(fragment.being_scored):
        lease = state.leases.get(name)
        if lease is not None:
            revoke(state, lease, why)
    if fragment.to_score:
        item = next(item for item, _ in job.sq.waiting() if item[1] is fragment)
        job.sq.remove(item)
    fragment.to_score.clear()
    fragment.being_scored.clear()
