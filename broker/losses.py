"""What is lost, and what that means for the job: workers, leases, blobs, versions. docs/architecture.md has the table.

Invariant: whatever happens here, a (job, incarnation, global step, micro-batch, sample) is trained on at most once.
"""

from collections.abc import Iterable, Sequence

from broker.blobs import free, free_fragments
from broker.broadcasts import give_up
from broker.commands import Evict
from broker.generation import will_hold
from broker.leasing import end_idle, forfeit, revoke
from broker.lifecycle import finish, free_batches, set_state
from broker.microbatch import Fragment, MicroBatch, Phase
from broker.placement import job_of, pool, trainer_of
from broker.portions import requeue, withdraw
from broker.ranks import AGAIN_NS, dissolve
from broker.state import Job, Lease, State, Worker
from digend.wire.records import Notice, RestartRecord, WorkerState

RANKS = "trainer ranks"
"""Among a job's failures: how often its ranks failed with nobody lost, since they last made a policy version."""


def lose_worker(state: State, worker: Worker, reason: str, left: bool = False) -> None:
    """The process is gone for us: its leases, blobs and weights with it. `left`: of its own will."""
    if worker.session is not None:
        state.out.append(Evict(session=worker.session, reason=reason))
        state.sessions.pop(worker.session, None)
        worker.session = None
    job, what = job_of(state, worker), "left" if left else "lost"
    for each in [job] if job is not None else witnesses(state, worker):
        state.record(each, WorkerState(worker=worker.name, role=worker.role, state=what, reason=reason))
    if job is not None:
        end_idle(state, job, worker)
        if not left:
            job.count("lost_workers")
            job.lost[worker.name] = reason
    lease = state.leases.get(worker.lease or "")
    if lease is not None:
        lose_lease(state, lease, reason)
    state.workers.pop(worker.name, None)
    state.roster += 1
    if job is None or not job.active:
        return
    job.trainer_waits = False  # what it waits for may not come
    _lose_blobs(state, job, worker.hello.instance)
    unassign(job, worker)
    give_up(state, job, worker)
    if worker.role == "trainer":
        job.failures.pop(RANKS, None)  # that explains it
        restart(state, job, f"{_place(job, worker)} {what if left else 'was lost'}: {reason}")


def _place(job: Job, worker: Worker) -> str:
    if job.spec.ranks == 1:
        return f"trainer {worker.name}"
    return f"trainer rank {job.ranks.index(worker.name)} ({worker.name})"


def give_up_ranks(state: State, job: Job, why: str) -> None:
    """The ranks do not work together, though no process is known to be lost. All leave; soon the job goes on from its
    checkpoint, with the loss as the reason if one is noticed meanwhile (`broken_ranks`)."""
    job.failures[RANKS] = job.failures.get(RANKS, 0) + 1
    if job.failures[RANKS] > job.spec.task_retries:
        finish(state, job, "failed", f"the trainer ranks failed {job.failures[RANKS]} times, last: {why}")
        return
    if _leave_ranks(state, job, why):
        job.broken, job.form_from_ns = why, state.now + AGAIN_NS


def broken_ranks(state: State, job: Job) -> None:
    """Nobody is known to be lost: so be it."""
    if job.broken and state.now >= job.form_from_ns:
        restart(state, job, f"the trainer ranks were given up: {job.broken}")


def witnesses(state: State, worker: Worker) -> list[Job]:
    """Jobs that are told of a worker that is none of theirs: of the recorder, all that have workers."""
    return state.active() if worker.role == "recorder" else []


def unassign(job: Job, worker: Worker) -> None:
    """Fragments that were dealt to the worker and that it has not begun are anybody's."""
    for _, fragment in job.waiting:
        if fragment.worker == worker.name:
            fragment.worker = None


def lose_lease(state: State, lease: Lease, reason: str, told: bool = False) -> None:
    """Whatever was leased is to be done again, by anyone. `told`: by the worker itself."""
    if told:
        forfeit(state, lease, reason)
    else:
        revoke(state, lease, reason)
    job = state.jobs[lease.job]
    if not job.open:
        return
    job.trainer_waits = False
    if lease.label == "encode":
        job.encoding = {uid: held for uid, held in job.encoding.items() if held != lease.id}
        job.unencoded_of = None
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None:
        return
    batch.failures += 1
    if batch.failures > job.spec.task_retries + 1:
        finish(
            state,
            job,
            "failed",
            f"{lease.label} of micro-batch {batch.index} was lost {batch.failures} times: {reason}",
        )
    elif fragment is not None and lease.label in ("score", "evaluate_score"):
        requeue(state, job, batch, fragment, fragment.being_scored.pop(lease.id))
    elif fragment is not None:
        requeue_fragment(state, job, batch, fragment)
    elif lease.label == "update":
        requeue_update(state, job, batch)


def requeue_fragment(state: State, job: Job, batch: MicroBatch, fragment: Fragment) -> None:
    """Generate again under the same stamp, wherever that version is held."""
    free_fragments(state, [fragment])
    _count_waste(job, [fragment])
    fragment.forget()
    batch.phase, batch.outcome = Phase.CLAIMED, None
    if (batch, fragment) not in job.waiting:
        job.waiting.append((batch, fragment))


def _count_waste(job: Job, fragments: Sequence[Fragment]) -> None:
    """Samples that were made and will not be used: none, by design, without a loss."""
    wasted = sum(fragment.num_samples for fragment in fragments if fragment.result is not None)
    if wasted:
        job.count("wasted_generation", wasted)


def requeue_update(state: State, job: Job, batch: MicroBatch) -> None:
    """The trainer does not have it any more: back to UQ, or further back where its blobs are gone."""
    batch.update_lease = batch.update = None
    if batch.outcome is not None and not batch.outcome.selected:
        return
    live = state.live_instances()
    gone = [fragment for fragment in batch.fragments if fragment.owner not in live or embedded_otherwise(job, fragment)]
    if gone:
        for fragment in gone:
            requeue_fragment(state, job, batch, fragment)
        return
    batch.phase = Phase.READY
    place = batch.index if job.spec.deterministic else None
    job.uq.push(batch, batch.stamp[1] if batch.stamp else 0, batch.global_step, state.now, place)


def _lose_blobs(state: State, job: Job, instance: str) -> None:
    """Everything not yet trained on that needs a blob of this process is generated again."""
    forget_conditions(state, job, [uid for uid, ref in job.conditions.items() if ref.instance == instance])
    for batch in job.open_batches():
        lost = [fragment for fragment in batch.fragments if fragment.owner == instance]
        if not lost or batch.phase in (Phase.APPLIED, Phase.UPDATING):
            # An update that runs has its blobs, or fails with "blob_lost".
            continue
        if all(not fragment.unscored for fragment in lost) and batch.purpose == "evaluate":
            continue  # its scores count; only its pictures are gone
        for fragment in lost:
            take_back(state, job, batch, fragment, "its samples were lost")


def take_back(state: State, job: Job, batch: MicroBatch, fragment: Fragment, why: str) -> None:
    """A fragment that was generated has to be generated again, wherever its micro-batch stands."""
    job.uq.remove(batch)
    withdraw(state, job, fragment, why)
    requeue_fragment(state, job, batch, fragment)


def forget_conditions(state: State, job: Job, uids: Iterable[str]) -> None:
    """These embeddings are encoded again where they are still wanted."""
    free(state, [job.conditions.pop(uid) for uid in uids])
    job.unencoded_of = None


def embedded_otherwise(job: Job, fragment: Fragment) -> bool:
    """Rolled out with an embedding that is not the one the trainer would use: another encoder's, after a loss."""
    return any(
        uid in job.conditions and job.conditions[uid].digest != digest for uid, digest in fragment.conditions.items()
    )


def take_back_embedded_otherwise(state: State, job: Job) -> None:
    """Embeddings have changed under samples that wait to be trained on: those are generated again."""
    for batch in job.rollout:
        if batch.phase in (Phase.CLAIMED, Phase.READY):
            for fragment in batch.fragments:
                if fragment.result is not None and embedded_otherwise(job, fragment):
                    take_back(state, job, batch, fragment, "its prompts were encoded anew")


def discard_unreachable(state: State, job: Job) -> None:
    """A dealt micro-batch whose version nobody holds any more is made again, whole, at the version of now."""
    now, dealt = job.stamp, {}
    for batch, fragment in job.waiting:
        if batch.stamp is not None and batch.stamp != now:
            dealt[id(batch)] = batch
            owner = state.workers.get(fragment.worker or "")
            if owner is not None and not will_hold(job, batch.stamp, owner):
                fragment.worker = None  # anybody who holds it may make it
    for batch in dealt.values():
        if batch.stamp is not None and not any(will_hold(job, batch.stamp, each) for each in pool(state, job)):
            discard(state, job, batch, f"no worker holds version {batch.stamp[1]}")
    for batch in job.unclaimed if job.spec.deterministic else ():
        if batch.pinned is None or batch.pinned == job.stamp:
            continue
        if batch.pinned[1] == job.version:
            batch.pinned = job.stamp  # a restarted trainer has the same weights under a new incarnation
        elif not all(will_hold(job, batch.pinned, each) for each in pool(state, job)):
            batch.pinned = None


def discard(state: State, job: Job, batch: MicroBatch, why: str) -> None:
    """Forget a micro-batch whole and put it back where claims are made from."""
    for fragment in batch.fragments:
        lease = state.leases.get(fragment.lease or "")
        if lease is not None:
            revoke(state, lease, why)
        withdraw(state, job, fragment, why)
    job.waiting = [entry for entry in job.waiting if entry[0] is not batch]
    job.uq.remove(batch)
    free_batches(state, job, [batch])
    _count_waste(job, batch.fragments)
    batch.forget()
    unclaimed = job.evaluation.unclaimed if job.evaluation and batch.purpose == "evaluate" else job.unclaimed
    if batch not in unclaimed:
        unclaimed.append(batch)
        unclaimed.sort(key=lambda other: (other.global_step, other.index))
    job.count("discarded_micro_batches")
    message = f"micro-batch {batch.index} discarded: {why}"
    state.record(job, Notice(level="info", message=message, details={"count": "discarded_micro_batches"}))


def reset_step(state: State, job: Job, why: str) -> None:
    """The trainer's gradients are not what the journal says: drop them and train the step's micro-batches again."""
    for batch in job.step_batches():
        running = state.leases.get(batch.update_lease or "")
        if running is not None:
            revoke(state, running, "the gradients are reset")
        if batch.phase in (Phase.APPLIED, Phase.UPDATING):
            requeue_update(state, job, batch)
    job.reset_wanted = True
    job.count("resets")
    state.record(job, Notice(level="warning", message=f"gradients of global step {job.global_step} reset: {why}"))


def restart(state: State, job: Job, why: str) -> None:
    """A new incarnation, from the newest checkpoint; UQ survives only if that is the current version."""
    if not _leave_ranks(state, job, why):
        return
    job.broken = ""
    job.incarnation += 1
    job.count("restarts")
    step, version = job.checkpoint_at
    if (step, version) == (job.global_step, job.version):
        for batch in job.step_batches():
            if batch.phase in (Phase.APPLIED, Phase.UPDATING):
                requeue_update(state, job, batch)
    else:
        for batch in list(job.rollout):
            discard(state, job, batch, "the run goes back to a checkpoint")
        _drop_evaluation(state, job)
        job.rollout, job.unclaimed, job.waiting = [], [], []
        job.global_step, job.version, job.at_border = step, version, True
        job.num_skipped = job.checkpoint_skipped
    job.evaluated.update({(job.incarnation, done): None for _, done in list(job.evaluated) if done <= step})
    free(state, [blob for weights in job.published.values() for blob in weights.blobs])
    job.published.clear()
    job.reset_wanted, job.checkpoint_due = False, job.borrows
    if job.global_step == job.spec.num_global_steps and job.checkpoint is None:
        job.checkpoint_due = True
    job.trainer_waits = False
    state.record(job, RestartRecord(incarnation=job.incarnation, global_step=job.global_step, reason=why))
    set_state(state, job, "preparing", why)


def _leave_ranks(state: State, job: Job, why: str) -> bool:
    """Where there are several: those that are left stop what they do. Whether the job goes on."""
    leader = trainer_of(state, job)
    lease = state.leases.get(leader.lease or "") if leader is not None else None
    if job.spec.ranks > 1:
        dissolve(state, job, why)
        if lease is not None:
            lose_lease(state, lease, why)
    return job.active


def _drop_evaluation(state: State, job: Job) -> None:
    evaluation = job.evaluation
    if evaluation is None:
        return
    for batch in evaluation.micro_batches:
        for fragment in batch.fragments:
            lease = state.leases.get(fragment.lease or "")
            if lease is not None:
                revoke(state, lease, "the evaluation starts again")
            withdraw(state, job, fragment, "the evaluation starts again")
    free_batches(state, job, evaluation.micro_batches)
    job.evaluation = None
