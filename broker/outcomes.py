"""What a finished or failed task changes. A result counts only under a lease that still stands; else it is acknowledged
and its blobs are freed."""

from collections.abc import Callable
from dataclasses import replace

from broker.blobs import free, refs_of
from broker.forecast import measure
from broker.leasing import SCORES, acknowledge, forfeit, record_task, release
from broker.lifecycle import checkpointed, close_step, finish, set_state
from broker.losses import (
    RANKS,
    embedded_otherwise,
    forget_conditions,
    give_up_ranks,
    lose_lease,
    lose_worker,
    requeue_fragment,
    requeue_update,
    reset_step,
    take_back,
    take_back_embedded_otherwise,
)
from broker.microbatch import MicroBatch, Phase, SampleKey
from broker.portions import queue_scores, requeue, withdraw
from broker.scoring import usable
from broker.state import SECOND, Job, Lease, State, Worker
from digend.wire.records import Notice, TaskFailure
from digend.wire.refs import BlobRef
from digend.wire.tasks import (
    CheckpointResult,
    CommitResult,
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    PrepareResult,
    PrepareTask,
    Receipt,
    ResetResult,
    ResultBody,
    SampleScore,
    ScoreResult,
    ScoreTask,
    TaskBody,
    TaskError,
    UpdateResult,
    UpdateTask,
)

# The job cannot go on: another try gives the same.
_FATAL = ("weights", "model", "config")

_CHECKPOINT_AGAIN_NS = 5 * SECOND


def finished(state: State, worker: Worker, lease_id: str, result: ResultBody, receipt: Receipt) -> None:
    acknowledge(state, worker, lease_id)
    lease = state.leases.get(lease_id)
    if lease is None or lease.instance != worker.hello.instance:
        _free_unwanted(state, result)
        return
    complaint = _complaint(lease, result)
    if complaint:
        free(state, refs_of(result))
        _failed(state, worker, lease, TaskError(reason="internal", message=complaint, retry=True))
        return
    job = state.jobs[lease.job]
    release(state, lease)
    num_samples = _num_samples(lease)
    switch_ns = measure(job, worker, lease, receipt, num_samples)
    record_task(state, job, lease, receipt, num_samples, switch_ns)
    job.failures.pop(f"{lease.label} on {worker.name}", None)
    _HANDLERS[type(result)](state, job, lease, worker, result)
    if isinstance(result, GenerateResult) and lease.label == "generate":
        worker.generation.add(receipt.total_ns, num_samples)


def _num_samples(lease: Lease) -> int:
    if isinstance(lease.task, ScoreTask):
        return len(lease.task.items)
    return lease.fragment.num_samples if lease.fragment else 0


def _free_unwanted(state: State, result: ResultBody) -> None:
    """A late or repeated result: nobody will ask for its blobs, unless it is the one that counted, told again."""
    refs = refs_of(result)
    if not refs:
        return
    wanted = [ref for kept in state.kept for ref in kept.refs]
    for job in state.jobs.values():
        wanted += [*job.conditions.values(), *(blob for weights in job.published.values() for blob in weights.blobs)]
        for batch in job.open_batches():
            wanted += [ref for fragment in batch.fragments for ref in refs_of(fragment.result)]
    known = {(ref.instance, ref.id) for ref in wanted}
    free(state, [ref for ref in refs if (ref.instance, ref.id) not in known])


def _complaint(lease: Lease, result: ResultBody) -> str:
    """What is wrong with the form of a result. A worker's error, so it is handled as one."""
    if result.kind != lease.task.kind:
        return f"a {result.kind} result came for a {lease.task.kind} task"
    if isinstance(result, GenerateResult) and lease.micro_batch is not None:
        if lease.micro_batch.purpose == "train" and result.trajectory is None:
            return "a rollout for training came without its trajectories"
        if lease.fragment is not None and result.num_samples != lease.fragment.num_samples:
            return f"{result.num_samples} samples came, {lease.fragment.num_samples} were asked for"
    if isinstance(lease.task, EncodeTask) and isinstance(result, EncodeResult):
        missing = [prompt.uid for prompt in lease.task.prompts if prompt.uid not in result.conditions]
        return f"no embeddings came of prompt {missing[0]}" if missing else ""
    return _wrong_version(lease.task, result)


def _wrong_version(task: TaskBody, result: ResultBody) -> str:
    """Weights published under another name than was asked for would be staged by nobody, and waited for for ever."""
    if not isinstance(result, PrepareResult | CommitResult) or result.weights is None:
        return ""
    assert isinstance(task, PrepareTask | CommitTask)
    asked = (task.job, task.incarnation, task.version + (task.kind == "commit"))
    came = (result.weights.job, result.weights.incarnation, result.weights.version)
    if came == asked:
        return ""
    words = "version {2} of job {0}, incarnation {1}"
    return f"policy {words.format(*came)} came, {words.format(*asked)} was asked for"


def _prepared(state: State, job: Job, lease: Lease, worker: Worker, result: PrepareResult) -> None:
    worker.health.loaded()
    worker.prepared[job.id] = job.incarnation if worker.role != "trainer" else _incarnation(lease)
    if worker.role == "reward":
        return
    job.peak_flops[worker.name] = result.peak_flops
    if job.base_digest and result.base_digest != job.base_digest:
        finish(
            state,
            job,
            "failed",
            f"base weights differ: {worker.name} has {result.base_digest}, others have {job.base_digest}",
        )
        return
    if job.base_digest and result.adapter_digest != job.adapter_digest:
        finish(
            state,
            job,
            "failed",
            f"training.init_adapter: {worker.name} has an adapter with the digest {result.adapter_digest or 'none'}, "
            f"others have {job.adapter_digest or 'none'}",
        )
        return
    _record_commit(state, job, worker, result.commit)
    job.base_digest, job.adapter_digest = result.base_digest, result.adapter_digest
    if not job.sigmas:
        job.sigmas, job.eval_sigmas = result.sigmas, result.eval_sigmas
    if result.weights is not None:
        job.published[result.weights.version] = result.weights


def _record_commit(state: State, job: Job, worker: Worker, commit: str) -> None:
    """Once a job; another worker's may differ as long as the weights do not."""
    if commit and not job.base_digest:
        message = f"model.path is commit {commit} of the hub on {worker.name}"
        state.record(job, Notice(level="info", message=message, details={"commit": commit}))


def _incarnation(lease: Lease) -> int:
    return lease.task.incarnation


def _encoded(state: State, job: Job, lease: Lease, worker: Worker, result: EncodeResult) -> None:
    job.encoding = {uid: held for uid, held in job.encoding.items() if held != lease.id}
    free(state, [ref for uid, ref in result.conditions.items() if uid in job.conditions])
    job.conditions = {**result.conditions, **job.conditions}
    job.unencoded_of = None
    take_back_embedded_otherwise(state, job)


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
    if embedded_otherwise(job, fragment) and batch.purpose == "train":
        take_back(state, job, batch, fragment, "its prompts were encoded anew")
    elif fragment.unscored:
        queue_scores(state, job, batch, fragment, assisted=lease.label == "assist")
    elif batch.scored:
        job.scored.append(batch)


def _name(batch: MicroBatch, key: SampleKey) -> tuple[str, int]:
    group = batch.groups[key[0]]
    return group.prompt.uid, group.samples[key[1]].index


def _scored(state: State, job: Job, lease: Lease, worker: Worker, result: ScoreResult) -> None:
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None or fragment is None:
        raise AssertionError("a score lease names its fragment")
    portion = fragment.being_scored.pop(lease.id)
    given = {(score.prompt, score.index): score for score in result.scores}
    retry = portion.tries < job.spec.reward_retries
    for key in portion.keys:
        name = _name(batch, key)
        score = given.get(name) or _failure(*name, "the reward returned no value for it")
        if usable(score) or not retry:
            fragment.scores[key] = score
    batch.group_metrics.update(result.group_metrics)
    again = tuple(key for key in portion.keys if key not in fragment.scores)
    if again:
        requeue(state, job, batch, fragment, replace(portion, keys=again, tries=portion.tries + 1))
    elif batch.scored:
        job.scored.append(batch)


def _failure(prompt: str, index: int, why: str) -> SampleScore:
    return SampleScore(prompt=prompt, index=index, reward=None, components={}, failure=why)


def _updated(state: State, job: Job, lease: Lease, worker: Worker, result: UpdateResult) -> None:
    batch = lease.micro_batch
    if batch is None:
        raise AssertionError("an update lease names its micro-batch")
    batch.phase, batch.update, batch.update_lease = Phase.APPLIED, result, None
    if result.pairs:
        job.count("recorded_pairs", len(result.pairs))
    if result.tried:
        times = ", ".join(f"{width}: {seconds:.3g} s" for width, seconds in result.tried)
        message = f"timestep width {result.width}, tried on {worker.name} (seconds a pair): {times}"
        state.record(job, Notice(level="info", message=message, details={"timestep_width": str(result.width)}))


def _committed(state: State, job: Job, lease: Lease, worker: Worker, result: CommitResult) -> None:
    for name in ("applied", RANKS):
        job.failures.pop(name, None)
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
    if lease is not None and lease.instance == worker.hello.instance:
        _failed(state, worker, lease, error)


def _failed(state: State, worker: Worker, lease: Lease, error: TaskError) -> None:
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
    if worker.role == "trainer" and lease.label in ("assist", "generate"):
        if error.reason == "out_of_memory":
            worker.health.ran_out(state.now, job.id, offloaded=worker.offloaded)
        else:
            worker.offloaded = False
    if error.reason in _FATAL:
        finish(state, job, "failed", f"{lease.label} on {worker.name}: {error.message}")
    elif error.reason == "blob_lost":
        _lost_blob(state, job, lease, error)
    elif error.reason == "rank_lost" and job.spec.ranks > 1:
        lose_lease(state, lease, error.message, told=True)
        if job.active:
            give_up_ranks(state, job, error.message)
    elif error.reason == "applied" and lease.label in ("update", "commit"):
        _reset_or_fail(state, job, lease, error)
    elif lease.label in ("score", "evaluate_score"):
        _mask(state, job, lease, error)
    elif lease.label == "checkpoint" and error.reason == "checkpoint" and error.retry:
        _hold(state, job, lease, error)
    else:
        _retry(state, job, lease, worker, error)


def _hold(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    """The disk does not take the checkpoint now: nothing is trained that could not be kept, and it is tried again."""
    lose_lease(state, lease, error.message, told=True)
    job.checkpoint_from_ns = state.now + _CHECKPOINT_AGAIN_NS
    set_state(state, job, "held", error.message)


def late(state: State, lease: Lease, why: str) -> None:
    """No progress until the lease ended: whoever holds it is lost. A score that does not come is a failed score; where
    the samples are lost with it, it is tried as often, and then it is the job that fails."""
    worker, fragment = state.workers[lease.worker], lease.fragment
    if lease.label in SCORES and fragment is not None:
        if fragment.owner != worker.hello.instance:
            _failed(state, worker, lease, TaskError(reason="internal", message=why, retry=True))
        else:
            _hung(state, lease, why)
    lose_worker(state, worker, why)


def _hung(state: State, lease: Lease, why: str) -> None:
    job, batch = state.jobs[lease.job], lease.micro_batch
    if batch is None:
        return
    batch.late_scores += 1
    if batch.late_scores > job.spec.reward_retries:
        tries = f"{batch.late_scores} times" if batch.late_scores > 1 else "once"
        longer = "; a reward that only takes long wants more schedule.score_lease_s"
        finish(state, job, "failed", f"{why}, {tries} for micro-batch {batch.index}{longer}")


def _reset_or_fail(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    lose_lease(state, lease, error.message, told=True)
    job.failures["applied"] = job.failures.get("applied", 0) + 1
    if job.open and job.failures["applied"] > job.spec.task_retries:
        finish(state, job, "failed", f"gradients were reset {job.spec.task_retries} times, and again: {error.message}")
    elif job.open:
        reset_step(state, job, error.message)


def _retry(state: State, job: Job, lease: Lease, worker: Worker, error: TaskError) -> None:
    """Where the job has no ranks, those that were lost are another job's, and will be gone."""
    key = f"{lease.label} on {worker.name}"
    job.failures[key] = job.failures.get(key, 0) + 1
    if job.failures[key] > job.spec.task_retries or not (error.retry or error.reason == "rank_lost"):
        finish(state, job, "failed", f"{key} failed {job.failures[key]} times, last: {error.message}")
        return
    lose_lease(state, lease, error.message, told=True)


def _mask(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    """A score task that broke is a failed score of each of its samples, tried again before they are masked."""
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None or fragment is None:
        raise AssertionError("a score lease names its fragment")
    forfeit(state, lease, error.message)
    portion = fragment.being_scored[lease.id]
    scores = tuple(_failure(*_name(batch, key), error.message) for key in portion.keys)
    _scored(state, job, lease, state.workers[lease.worker], ScoreResult(scores=scores))


def _lost_blob(state: State, job: Job, lease: Lease, error: TaskError) -> None:
    """Its owner is gone or has forgotten: what needs it is generated (or encoded) again."""
    batch, fragment = lease.micro_batch, lease.fragment
    if batch is None:
        _retry(state, job, lease, state.workers[lease.worker], error)
        return
    forfeit(state, lease, error.message)
    batch.failures += 1
    if batch.failures > job.spec.task_retries + 1:
        finish(state, job, "failed", f"{lease.label} of micro-batch {batch.index}: {error.message}")
        return
    state.record(job, Notice(level="warning", message=f"{lease.label} of micro-batch {batch.index}: {error.message}"))
    _forget_used(state, job, lease.task)
    if fragment is not None:
        withdraw(state, job, fragment, error.message)
        requeue_fragment(state, job, batch, fragment)
    else:
        for other in batch.fragments:
            other.owner = None
        requeue_update(state, job, batch)


def _forget_used(state: State, job: Job, task: TaskBody) -> None:
    """Embeddings that a task used and that are still those of now: one of them may be what was lost."""
    used: dict[str, BlobRef] = {}
    if isinstance(task, GenerateTask):
        used = {group.prompt: group.condition for group in task.groups}
    elif isinstance(task, UpdateTask):
        used = {item.prompt: item.condition for item in task.items}
    forget_conditions(state, job, [uid for uid, ref in used.items() if job.conditions.get(uid) == ref])
