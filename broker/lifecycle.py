"""A job's life: prepare, evaluate before, global steps with checkpoints and evaluations, evaluate after, end.

Owns the phases of a job and what is freed when they end. Paper Algorithm 1 is the loop that these functions unroll.
"""

from broker import requests
from broker.blobs import free, free_fragments, refs_of
from broker.commands import End, RetireVersions
from broker.drift import warn
from broker.evaluation_report import evaluation_record, unrewarded
from broker.generation import step_complete
from broker.lacking import lacking
from broker.learning import never_trained, none_survived, steps_trained, warn_if_flat
from broker.leasing import end_idle, revoke
from broker.microbatch import MicroBatch
from broker.order import free_trainers
from broker.placement import involved, members, trainer_of
from broker.plan import plan_evaluation, plan_rollout
from broker.ranks import bind, bound, dissolve, form, taken
from broker.scoring import resolve
from broker.state import Evaluation, Job, Kept, State
from broker.step_report import step_record, version_gap
from digend.wire.records import (
    CheckpointRecord,
    JobState,
    Notice,
)
from digend.wire.tasks import CheckpointResult, CommitResult


def set_state(state: State, job: Job, name: str, reason: str = "") -> None:
    if (job.state, job.reason) != (name, reason):
        job.state, job.reason = name, reason
        record_state(state, job)


def record_state(state: State, job: Job) -> None:
    state.record(job, JobState(state=job.state, reason=job.reason, user=job.user, priority=job.priority))


def _say(job: Job, what: str) -> None:
    """What goes on, beside the state; not in the place of why a job is held."""
    if job.state != "held":
        job.reason = what


def advance(state: State, job: Job) -> None:
    """Move the job as far as it can go without a worker."""
    if job.state == "preparing":
        _await_workers(state, job)
    if job.state == "preparing":
        return
    resolve(state, job)
    if job.evaluation is not None:
        _close_evaluation(state, job)
    if not job.hold and step_complete(job) and requests.trained(job) == 0:
        close_step(state, job, None)
    if job.leaving or job.hold:
        return
    if job.open and job.evaluation is None:
        _open_next(state, job)
    if job.open and job.spec.stale_quota and not job.at_border and not job.unclaimed:
        _open_early(job)


def start(state: State, job: Job) -> None:
    """Give a queued job its workers, whose pool must be free."""
    _bind(state, job)
    if job.started_ns is None:
        job.started_ns = state.now
    for worker in state.workers.values():
        if involved(job, worker):
            worker.idle_since = state.now if worker.lease is None else None
    set_state(state, job, "preparing", "workers load the model")


def _bind(state: State, job: Job) -> None:
    """A trainer of its own; another one where that is gone, and one is free that has its checkpoint. So for ranks."""
    there = trainer_of(state, job) is not None if job.spec.ranks == 1 else bound(state, job)
    if not there:
        free = free_trainers(state, job, taken(state, job))
        if free:
            dissolve(state, job, "others take their place")
            bind(state, job, free)


def _await_workers(state: State, job: Job) -> None:
    _bind(state, job)
    trainer, absent = trainer_of(state, job), lacking(state, job)
    if absent:
        set_state(state, job, "preparing", absent)
    elif job.spec.ranks > 1 and (apart := form(state, job)):
        set_state(state, job, "preparing", apart)
    elif trainer is not None and trainer.prepared.get(job.id) == job.incarnation and job.sigmas:
        go_on(state, job)
    else:
        set_state(state, job, "preparing", "workers load the model")


def go_on(state: State, job: Job) -> None:
    """Running, or still held."""
    set_state(state, job, "held" if job.hold else "running", job.hold)


def _open_next(state: State, job: Job) -> None:
    """An evaluation where one is due, else the next rollout, else the end."""
    spec, rules = job.spec, job.spec.evaluation
    last = job.global_step == spec.num_global_steps
    label = "before" if job.global_step == spec.first_global_step else "after" if last else "during"
    due = label != "during" or (rules.every > 0 and job.global_step % rules.every == 0)
    if rules.enabled and due and job.at_border and not _was_evaluated(job):
        _open_evaluation(state, job, label)
    elif last:
        if not job.checkpoint_due and job.checkpoint_at[0] == job.global_step and job.checkpoint:
            finish(state, job, "completed", steps_trained(job))
    elif job.at_border:
        _open_rollout(state, job)


def _was_evaluated(job: Job) -> bool:
    # Before any update the weights are the same in every incarnation.
    incarnation = 0 if job.global_step == job.spec.first_global_step else job.incarnation
    return (incarnation, job.global_step) in job.evaluated


def _open_evaluation(state: State, job: Job, label: str) -> None:
    rules = job.spec.evaluation
    num = rules.during_samples if label == "during" else rules.samples
    batches = [
        MicroBatch(purpose="evaluate", rollout=-1, index=index, global_step=job.global_step, groups=(group,))
        for index, group in enumerate(plan_evaluation(job.spec, num))
    ]
    job.evaluation = Evaluation(label, job.global_step, job.stamp, state.now, batches, list(batches))
    _say(job, f"evaluation {label}")


def _open_rollout(state: State, job: Job) -> None:
    if not job.step_batches():
        job.rollout = _batches(job, job.global_step)
        job.unclaimed = list(job.rollout)
    job.at_border = False
    job.rollout_stamp = job.stamp
    job.assisted, job.trainer_waits = 0, False
    _say(job, "")
    job.start_clock(state.now)


def _open_early(job: Job) -> None:
    """TCSS: at the tail of a step, the next rollout's micro-batches may be claimed, `stale_quota` of them."""
    last = job.spec.num_global_steps if job.stop is None else job.stop.global_step
    if job.global_step + 1 >= last or job.rollout[-1].global_step > job.global_step:
        return
    batches = _batches(job, job.global_step + 1)
    if job.spec.deterministic:
        for batch in batches[: job.spec.stale_quota]:
            batch.pinned = job.stamp
    job.rollout += batches
    job.unclaimed = list(batches)


def _batches(job: Job, global_step: int) -> list[MicroBatch]:
    """Micro-batches of the rollout that feeds a global step, from that step on."""
    updates = job.spec.updates_per_rollout
    rollout = global_step // updates
    plans = plan_rollout(job.spec, rollout)
    batches = [
        MicroBatch(
            purpose="train",
            rollout=rollout,
            index=index,
            global_step=rollout * updates + index * updates // len(plans),
            groups=groups,
        )
        for index, groups in enumerate(plans)
    ]
    # After a restart inside a rollout, what earlier global steps were made of is not made again; the last rollout may
    # have micro-batches of global steps that will never be.
    steps = range(global_step, job.spec.num_global_steps)
    return [batch for batch in batches if batch.global_step in steps]


def close_step(state: State, job: Job, result: CommitResult | None) -> None:
    """A global step is over: with a new version, or without one and a reason."""
    batches, z0 = job.step_batches(), requests.planned(job)
    skipped = none_survived(batches) if result is None else result.skipped
    job.num_skipped = job.num_skipped + 1 if skipped else 0
    made_version = result is not None and result.weights is not None
    if made_version:
        job.version += 1
    job.global_step += 1
    record = step_record(state, job, batches, result, z0, skipped)
    if record.reward_mean is not None:
        job.reward_mean = record.reward_mean
    state.record(job, record)
    warn(state, job, [batch for batch in batches if not version_gap(job, batch, skipped)])
    warn_if_flat(state, job, batches)
    free_batches(state, job, batches)
    for batch in batches:
        job.uq.remove(batch)
    job.rollout = [batch for batch in job.rollout if batch.global_step >= job.global_step]
    job.at_border = job.global_step % job.spec.updates_per_rollout == 0
    job.assisted, job.trainer_waits = 0, False
    job.start_clock(state.now)
    if job.global_step == job.spec.num_global_steps or _checkpoint_every(job):
        job.checkpoint_due = True
    if never_trained(job):
        finish(state, job, "failed", f"no global step trained: {skipped}")
    elif job.num_skipped >= job.spec.max_skipped_steps:
        _stop_skipping(state, job, f"{job.num_skipped} global steps in a row were skipped: {skipped}")


def _stop_skipping(state: State, job: Job, why: str) -> None:
    """By the job's policy: it fails, or trains nothing more until somebody has looked and resumes it."""
    if job.spec.on_skipped == "fail":
        finish(state, job, "failed", why)
        return
    job.hold = f"{why}; digenctl resume {job.id} lets it go on"
    state.record(job, Notice(level="warning", message=f"held: {why}"))
    set_state(state, job, "held", job.hold)


def _checkpoint_every(job: Job) -> bool:
    """Never inside a rollout that feeds several global steps: the rest of it could not be kept."""
    every = job.spec.checkpoint_every
    return bool(every) and job.at_border and job.global_step // every > job.checkpoint_at[0] // every


def _close_evaluation(state: State, job: Job) -> None:
    evaluation = job.evaluation
    if evaluation is None or not all(batch.scored for batch in evaluation.micro_batches):
        return
    why = unrewarded(evaluation)
    if why:
        state.record(job, Notice(level="warning", message=why))
    seq = state.record(job, evaluation_record(state, job, evaluation))
    free_batches(state, job, evaluation.micro_batches, keep_for=seq)
    incarnation = 0 if evaluation.global_step == job.spec.first_global_step else job.incarnation
    job.evaluated[incarnation, evaluation.global_step] = None
    job.evaluation = None
    _say(job, "")


def free_batches(state: State, job: Job, batches: list[MicroBatch], keep_for: int | None = None) -> None:
    """Free the blobs of micro-batches; those of an evaluation once the recorder has written record `keep_for`."""
    fragments = [fragment for batch in batches for fragment in batch.fragments]
    if keep_for is None:
        free_fragments(state, fragments)
        return
    refs = tuple(ref for fragment in fragments for ref in refs_of(fragment.result))
    state.kept.append(Kept(job.id, keep_for, refs))


def retire(state: State, job: Job) -> None:
    """Versions that no open micro-batch names may go, on whoever staged or published them."""
    seen = (job.stamp, job.global_step, len(job.rollout), job.evaluation is None)
    if job.retired_of == seen and not _newcomer(state, job):
        return
    job.retired_of = seen
    batches = job.open_batches()
    stamps = [stamp for batch in batches for stamp in (batch.stamp, batch.pinned) if stamp] + [job.stamp]
    if job.rollout:
        stamps.append(job.rollout_stamp)
    oldest = min(stamp[1] for stamp in stamps)
    for version in [version for version in job.published if version < oldest]:
        free(state, job.published.pop(version).blobs)
    for worker in members(state, job):
        mark = (job.id, (job.incarnation, oldest))
        if worker.role != "generator" or worker.session is None or worker.retired == mark:
            continue
        worker.retired = mark
        worker.staged = {key: None for key in worker.staged if key[0] != job.id or key[1][1] >= oldest}
        state.out.append(
            RetireVersions(session=worker.session, job=job.id, incarnation=job.incarnation, oldest_version=oldest)
        )


def _newcomer(state: State, job: Job) -> bool:
    """Whether a generator of the job has never been told what is old."""
    return any(
        worker.retired is None and worker.role == "generator" and worker.session is not None
        for worker in members(state, job)
    )


def checkpointed(state: State, job: Job, result: CheckpointResult) -> None:
    job.checkpoint, job.checkpoint_due = result, False
    trainer = trainer_of(state, job)
    job.checkpoint_node = trainer.node if trainer is not None else job.checkpoint_node
    if job.state == "held":
        go_on(state, job)
    job.checkpoint_at, job.checkpoint_skipped = (job.global_step, job.version), job.num_skipped
    state.record(
        job,
        CheckpointRecord(
            global_step=job.global_step,
            version=job.version,
            incarnation=job.incarnation,
            path=result.path,
            digest=result.digest,
            pipeline=result.pipeline,
        ),
    )


def finish(state: State, job: Job, name: str, reason: str = "") -> None:
    """The end, good or bad: leases revoked, workers told to unload, time accounts closed."""
    release_workers(state, job, name)
    job.finished_ns, job.stop = state.now, None
    if name == "failed":
        state.record(job, Notice(level="error", message=reason))
    set_state(state, job, name, reason)


def release_workers(state: State, job: Job, name: str) -> None:
    """Take the job from its workers, where it has any, and forget its work in progress."""
    if job.active:
        _withdraw(state, job, name)
    job.trainer, job.followers, job.broken = None, (), ""
    job.rollout, job.unclaimed, job.waiting, job.evaluation = [], [], [], None
    job.scored, job.barred, job.unencoded, job.unencoded_of = [], [], [], None
    job.sq.clear()
    job.uq.clear()
    job.conditions.clear()
    job.encoding.clear()
    job.published.clear()


def _withdraw(state: State, job: Job, name: str) -> None:
    """Leases, blobs and models. Pictures of evaluations stay until the recorder has drawn them."""
    dissolve(state, job, f"the job is {name}")
    loading = dict.fromkeys(job.followers, True)
    for lease in [lease for lease in state.leases.values() if lease.job == job.id]:
        loading[lease.worker] = lease.label == "prepare"
        revoke(state, lease, f"the job is {name}")
    free_batches(state, job, job.open_batches())
    free(state, [*job.conditions.values(), *(weights.blob for weights in job.published.values())])
    for worker in state.workers.values():
        if involved(job, worker):
            end_idle(state, job, worker)
        has_it = worker.prepared.pop(job.id, None) is not None or loading.get(worker.name, False)
        if has_it and worker.session is not None:
            state.out.append(End(session=worker.session, job=job.id))
        worker.staged = {key: None for key in worker.staged if key[0] != job.id}
        worker.staging = {key: asked for key, asked in worker.staging.items() if key[0] != job.id}
