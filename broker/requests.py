"""Builds the tasks that are sent: what the core knows, put into words of the wire. Decides nothing."""

from collections.abc import Sequence

from broker.microbatch import Fragment, MicroBatch, SampleKey, Selected
from broker.state import Job, Worker
from digend.wire.tasks import (
    CheckpointTask,
    CommitTask,
    GenerateTask,
    GroupRequest,
    PrepareTask,
    ScoreItem,
    ScoreTask,
    UpdateItem,
    UpdateTask,
)


def prepare(job: Job, worker: Worker) -> PrepareTask:
    trainer = worker.role == "trainer"
    return PrepareTask(
        job=job.id,
        incarnation=job.incarnation,
        config=job.spec.config,
        checkpoint=job.checkpoint.path if job.checkpoint and trainer else None,
        checkpoint_digest=job.checkpoint.digest if job.checkpoint and trainer else "",
        version=job.version if trainer else 0,
    )


def generate(
    job: Job, batch: MicroBatch, fragment: Fragment, *, assist: bool = False, offload: bool = False
) -> GenerateTask:
    incarnation, version = batch.stamp or job.stamp
    evaluate = batch.purpose == "evaluate"
    sigmas = job.eval_sigmas if evaluate else job.sigmas
    return GenerateTask(
        job=job.id,
        incarnation=incarnation,
        version=version,
        purpose=batch.purpose,
        global_step=batch.global_step,
        rollout=batch.rollout,
        micro_batch=batch.index,
        fragment=fragment.index,
        groups=tuple(
            GroupRequest(
                prompt=batch.groups[at].prompt.uid,
                condition=job.conditions[batch.groups[at].prompt.uid],
                levels=(0.0,) * (len(sigmas) - 1) if evaluate else batch.groups[at].levels,
                samples=tuple(batch.groups[at].samples[sample] for sample in members),
            )
            for at, members in fragment.share
        ),
        sigmas=sigmas,
        assist=assist,
        offload=offload,
    )


def score(job: Job, batch: MicroBatch, fragment: Fragment, keys: Sequence[SampleKey]) -> ScoreTask:
    if fragment.result is None:
        raise AssertionError("a fragment is scored after it is generated")
    samples = fragment.result.samples
    return ScoreTask(
        job=job.id,
        incarnation=job.incarnation,
        purpose=batch.purpose,
        global_step=batch.global_step,
        rollout=batch.rollout,
        micro_batch=batch.index,
        fragment=fragment.index,
        items=tuple(
            ScoreItem(prompt=batch.groups[at].prompt, index=batch.groups[at].samples[sample].index, blob=samples)
            for at, sample in keys
        ),
    )


def update(job: Job, batch: MicroBatch) -> UpdateTask:
    if batch.outcome is None or batch.stamp is None:
        raise AssertionError("a micro-batch is updated after it is resolved")
    makers = batch.makers()
    return UpdateTask(
        job=job.id,
        incarnation=job.incarnation,
        version=batch.stamp[1],
        global_step=batch.global_step,
        rollout=batch.rollout,
        micro_batch=batch.index,
        sigmas=job.sigmas,
        items=tuple(_item(job, batch, makers[each.key], each) for each in batch.outcome.selected),
        z0=planned(job),
    )


def commit(job: Job) -> CommitTask:
    return CommitTask(
        job=job.id,
        incarnation=job.incarnation,
        version=job.version,
        global_step=job.global_step,
        micro_batches=job.applied(),
        z0=planned(job),
        z=trained(job),
    )


def checkpoint(job: Job) -> CheckpointTask:
    return CheckpointTask(
        job=job.id,
        incarnation=job.incarnation,
        version=job.version,
        global_step=job.global_step,
        final=job.global_step == job.spec.num_global_steps,
    )


def planned(job: Job) -> int:
    """Z0: pairs of the open global step if nothing fails."""
    return sum(group.num_pairs for batch in job.step_batches() for group in batch.groups)


def trained(job: Job) -> int:
    """Z: pairs of the samples that were selected; zero advantages count."""
    return sum(batch.outcome.num_pairs for batch in job.step_batches() if batch.outcome)


def _item(job: Job, batch: MicroBatch, fragment: Fragment, selected: Selected) -> UpdateItem:
    group = batch.groups[selected.key[0]]
    sample = group.samples[selected.key[1]]
    if fragment.result is None or fragment.result.trajectory is None:
        raise AssertionError("a fragment for training has a trajectory")
    return UpdateItem(
        prompt=group.prompt.uid,
        index=sample.index,
        advantage=selected.advantage,
        timesteps=sample.timesteps,
        levels=group.levels,
        trajectory=fragment.result.trajectory,
        condition=job.conditions[group.prompt.uid],
    )
