"""What a finished or failed task changes. A result counts only under a lease that still stands; else it is acknowledged
and its blobs are freed."""

from collections.abc import Callable

from broker.commands import Free
from broker.leasing import acknowledge, record_task, release
from broker.lifecycle import checkpointed, close_step, finish
from broker.losses import (
    lose_lease,
    requeue_fragment,
    requeue_score,
    requeue_update,
    reset_step,
)
from broker.microbatch import MicroBatch, Phase, SampleKey
from broker.scoring import usable
from broker.state import Job, Lease, State, Worker
from digend.wire.records import Notice, TaskFailure
from digend.wire.tasks import (
    CheckpointResult,
    CommitResult,
    EncodeResult,
    GenerateResult,
    PrepareResult,
    Receipt,
    ResetResult,
    ResultBody,
    SampleScore,
    ScoreResult,
    TaskError,
    UpdateResult,
)

# The job cannot go on: another try gives the same.
_FATAL = ("weights", "model", "config")


def finished(state: State, worker: Worker, lease_id: str, result: ResultBody, receipt: Receipt) -> None:
    acknowledge(state, worker, lease_id)
    lease = state.leases.get(lease_id)
    if lease is None or lease.instance != worker.hello.instance:
        _free_unwanted(state, worker, result)
        return
    job = state.jobs[lease.job]
    release(state, lease)
    num_samples = lease.fragment.num_samples if lease.fragment else 0
    record_task(state, job, lease, receipt, num_samples)
    job.failures.pop(f"{lease.label} on {worker.name}", None)
    _HANDLERS[type(result)](state, job, lease, worker, result)
    if isinstance(result, GenerateResult) and lease.label == "generate":
        worker.generation.add(receipt.total_ns, num_samples)


def _free_unwanted(state: State, worker: Worker, result: ResultBody) -> None:
    """A late or repeated result: nobody will ask for its blobs."""
    if isinstance(result, GenerateResult) and worker.session is not None:
        refs = [result.samples, result.trajectory] if result.trajectory else [result.samples]
        wanted = {
            ref.id
            for job in state.jobs.values()
            for batch in job.rollout + (job.evaluation.micro_batches if job.evaluation else [])
            for fragment in batch.fragments
            if fragment.result is not None
            for ref in (fragment.result.samples, fragment.result.trajectory)
            if ref is not None and ref.instance == worker.hello.instance
        }
        blobs = tuple(ref.id for ref in refs if ref.id not in wanted)
        if blobs:
            state.out.append(Free(session=worker.session, blobs=blobs))


def _prepared(state: State, job: Job, lease: Lease, worker: Worker, result: PrepareResult) -> None:
    worker.prepared[job.id] = job.incarnation if worker.role != "trainer" else _incarnation(lease)
    if worker.role == "reward":
        return
    if job.base_digest and result.base_digest != job.base_digest:
        finish(
            state,
            job,
            "failed",
            f"base weights differ: {worker.name} has {result.base_digest}, others have {job.base_digest}",
        )
        return
    job.base_digest = result.base_digest
    if not job.sigmas:
        job.sigmas, job.eval_sigmas = result.sigmas, result.eval_sigmas
    if result.weights is not None:
        job.published[result.weights.version] = result.weights


def _incarnation(lease: Lease) -> int:
    return lease.task.incarnation


def _encoded(state: State, job: Job, lease: Lease, worker: Worker, result: EncodeResult) -> None:
    job.encoding = {uid: held for uid, held in job.encoding.items() if held != lease.id}
    job.conditions.update(result.conditions)


def _generated(state: State, job: Job, lease: Lease, worker: Worker, result: GenerateResult) -> None:
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None or fragment is None:
        raise AssertionError("a generate lease names its fragment")
    fragment.lease, fragment.result, fragment.owner = None, result, worker.hello.instance
    given = {(score.prompt, score.index): score for score in result.scores}
    for key in fragment.unscored:
        score = given.get(_name(batch, key))
        if score is not None and usable(score):
            fragment.scores[key] = score
    if fragment.unscored:
        requeue_score(state, job, batch, fragment)


def _name(batch: MicroBatch, key: SampleKey) -> tuple[str, int]:
    group = batch.groups[key[0]]
    return group.prompt.uid, group.samples[key[1]].index


def _scored(state: State, job: Job, lease: Lease, worker: Worker, result: ScoreResult) -> None:
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None or fragment is None:
        raise AssertionError("a score lease names its fragment")
    fragment.score_lease = None
    given = {(score.prompt, score.index): score for score in result.scores}
    retry = fragment.score_tries < job.spec.reward_retries
    for key in fragment.unscored:
        name = _name(batch, key)
        score = given.get(name) or _failure(*name, "the reward returned no value for it")
        if usable(score) or not retry:
            fragment.scores[key] = score
    batch.group_metrics.update(result.group_metrics)
    if fragment.unscored:
        fragment.score_tries += 1
        requeue_score(state, job, batch, fragment)


def _failure(prompt: str, index: int, why: str) -> SampleScore:
    return SampleScore(prompt=prompt, index=index, reward=None, components={}, failure=why)


def _updated(state: State, job: Job, lease: Lease, worker: Worker, result: UpdateResult) -> None:
    batch = lease.micro_batch
    if batch is None:
        raise AssertionError("an update lease names its micro-batch")
    batch.phase, batch.update, batch.update_lease = Phase.APPLIED, result, None
    if result.pairs:
        job.count("recorded_pairs", len(result.pairs))


def _committed(state: State, job: Job, lease: Lease, worker: Worker, result: CommitResult) -> None:
    if result.weights is not None:
        job.published[result.weights.version] = result.weights
    close_step(state, job, result)


def _reset(state: State, job: Job, lease: Lease, worker: Worker, result: ResetResult) -> None:
    job.reset_wanted = False


def _checkpointed(state: State, job: Job, lease: Lease, worker: Worker, result: CheckpointResult) -> None:
    checkpointed(state, job, result)


_HANDLERS: dict[type, Callable[..., None]] = {
    PrepareResult: _prepared,
    EncodeResult: _encoded,
    GenerateResult: _generated,
    ScoreResult: _scored,
    UpdateResult: _updated,
    CommitResult: _committed,
    ResetResult: _reset,
    CheckpointResult: _checkpointed,
}


def broke(state: State, worker: Worker, lease_id: str, error: TaskError, receipt: Receipt) -> None:
    """A task failed: again elsewhere, or the samples are masked, or the job is over; never silently."""
    acknowledge(state, worker, lease_id)
    lease = state.leases.get(lease_id)
    if lease is None or lease.instance != worker.hello.instance:
        return
    job = state.jobs[lease.job]
    state.record(
        job,
        TaskFailure(
            worker=worker.name,
            task=lease.label,
            reason=error.reason,
            message=error.message,
            global_step=job.global_step,
            micro_batch=lease.micro_batch.index if lease.micro_batch else -1,
        ),
    )
    job.count("failed_tasks")
    if error.reason in _FATAL:
        finish(state, job, "failed", f"{lease.label} on {worker.name}: {error.message}")
    elif error.reason == "blob_lost":
        _lost_blob(state, job, lease, error)
    elif error.reason == "applied":
        lose_lease(state, lease, error.message)
        reset_step(state, job, error.message)
    elif lease.label in ("score", "evaluate_score"):
        _mask(state, job, lease, error)
    else:
        _retry(state, job, lease, worker, error)


def _retry(state: State, job: Job, lease: Lease, worker: Worker, error: TaskError) -> None:
    key = f"{lease.label} on {worker.name}"
    job.failures[key] = job.failures.get(key, 0) + 1
    if job.failures[key] > job.spec.task_retries or not error.retry:
        finish(state, job, "failed", f"{key} failed {job.failures[key]} times, last: {error.message}")
        return
    lose_lease(state, lease, error.message)


def _mask(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    """A score task that broke is a failed score of each of its samples, tried again before they are masked."""
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None or fragment is None:
        raise AssertionError("a score lease names its fragment")
    release(state, lease)
    scores = tuple(_failure(*_name(batch, key), error.message) for key in fragment.unscored)
    _scored(state, job, lease, state.workers[lease.worker], ScoreResult(scores=scores))


def _lost_blob(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    """Its owner is gone or has forgotten: what needs it is generated (or encoded) again."""
    batch, fragment = lease.micro_batch, lease.fragment
    release(state, lease)
    if batch is None:
        lose = job.failures[lease.label] = job.failures.get(lease.label, 0) + 1
        if lose > job.spec.task_retries:
            finish(state, job, "failed", f"{lease.label}: {error.message}")
        return
    batch.failures += 1
    if batch.failures > job.spec.task_retries + 1:
        finish(state, job, "failed", f"{lease.label} of micro-batch {batch.index}: {error.message}")
        return
    state.record(job, Notice(level="warning", message=f"{lease.label} of micro-batch {batch.index}: {error.message}"))
    if lease.label in ("generate", "evaluate", "assist") and fragment is not None:
        for at, _ in fragment.share:
            job.conditions.pop(batch.groups[at].prompt.uid, None)
        requeue_fragment(job, batch, fragment)
    elif fragment is not None:
        requeue_fragment(job, batch, fragment)
    else:
        for other in batch.fragments:
            other.owner = None
        requeue_update(state, job, batch)
