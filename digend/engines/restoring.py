"""From a live trainer to a checkpoint and back.

Owns what a checkpoint of a job holds and which checkpoints a job accepts: of the same base weights, with exactly the
parameters that it trains. Invariant: after `restore`, the next commit gives the bits it would have given.
"""

from pathlib import Path

import torch
from torch import Tensor

from digend.engines.checkpoints import (
    LORA,
    PIPELINE,
    Checkpoint,
    CheckpointState,
    checkpoint_folder,
    read_checkpoint,
    write_checkpoint,
)
from digend.engines.jobs import Job, load_job
from digend.engines.masters import AVERAGED
from digend.engines.optimizer import load_state, save_state
from digend.engines.policy import EMA
from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.outlines import shared
from digend.engines.training import Trainer
from digend.models.spec import Model
from digend.wire.tasks import CheckpointResult, CheckpointTask, PrepareTask


def save(job: Job, trainer: Trainer, task: CheckpointTask, runs_dir: Path, context: Context) -> CheckpointResult:
    """Write weights, optimizer and counters; the last one also writes the whole pipeline, and an adapter by itself.

    All ranks give their parts, rank 0 writes. Raises TaskFault("checkpoint").
    """
    if task.version != job.version:
        raise TaskFault("internal", f"checkpoint of version {task.version} asked for, but {job.version} is loaded")
    folder = checkpoint_folder(runs_dir, job.id, task.global_step)
    checkpoint = _checkpoint(job, trainer, task, context)
    peers = job.layout.peers
    if peers.rank:
        return CheckpointResult(path=str(folder), digest="")

    def extras(hidden: Path) -> None:
        if task.final:
            _write_pipeline(job, checkpoint, hidden)

    digest = write_checkpoint(folder, checkpoint, job.config.checkpoint.keep, extras)
    return CheckpointResult(path=str(folder), digest=digest, pipeline=str(folder / PIPELINE) if task.final else None)


def _checkpoint(job: Job, trainer: Trainer, task: CheckpointTask, context: Context) -> Checkpoint:
    """Whole on rank 0, without tensors on the others."""
    averages = {
        f"{average}/{name}": each for average in AVERAGED for name, each in job.policy.copies.get(average, {}).items()
    }
    state = CheckpointState(
        job=job.id,
        version=job.version,
        global_step=task.global_step,
        base_digest=job.base_digest,
        final=task.final,
        gradient_norms=trainer.guard.norms,
        loss_scale=trainer.loss_scale.value,
        clean=trainer.loss_scale.clean,
    )
    return Checkpoint(
        state,
        job.layout.whole(job.policy.parameters, context),
        job.layout.whole(save_state(trainer.optimizer, trainer.masters.parameters), context),
        job.layout.whole(averages, context),
        job.layout.whole(trainer.masters.state(), context),
    )


def _write_pipeline(job: Job, checkpoint: Checkpoint, folder: Path) -> None:
    """What evaluation saw: the moving average where there is one. Weights in shards are put into a model of their own,
    on the CPU."""
    if job.layout.generates_together:
        _write_model(_on_cpu(job, checkpoint), job.policy.form, folder)
        return
    with job.policy.using(EMA):
        _write_model(job.model, job.policy.form, folder)


def _write_model(model: Model, form: str, folder: Path) -> None:
    model.save(str(folder / PIPELINE))
    if form == "lora":
        model.save_adapter(str(folder / LORA))


def _on_cpu(job: Job, checkpoint: Checkpoint) -> Model:
    task = PrepareTask(job=job.id, incarnation=job.incarnation, config=job.config.model_dump_json())
    fresh = load_job(task, job.config, "cpu")
    fresh.policy.load(averaged(EMA, checkpoint) or checkpoint.weights)
    return fresh.model


def restore(job: Job, trainer: Trainer, folder: str, version: int, digest: str = "") -> None:
    """Bring weights, optimizer and counters back. Rank 0 reads them, however many ranks wrote them.

    Raises TaskFault("checkpoint") that names what does not fit.
    """
    peers = job.layout.peers
    with peers.agreed(patient=True):
        read = read_checkpoint(Path(folder), digest) if peers.rank == 0 else None
    checkpoint = shared(read, peers)
    with peers.agreed():
        _load(job, trainer, checkpoint, folder, version)


def _load(job: Job, trainer: Trainer, checkpoint: Checkpoint, folder: str, version: int) -> None:
    state, layout = checkpoint.state, job.layout
    for name, found, wanted in (
        ("version", state.version, version),
        ("base model's digest", state.base_digest, job.base_digest),
    ):
        if found != wanted:
            raise TaskFault("checkpoint", f"{folder}: its {name} is {found}, the job's is {wanted}")
    try:
        with torch.no_grad():
            job.policy.load(checkpoint.weights, fill=layout.fill)
            for average in AVERAGED:
                if average in job.policy.copies:
                    job.policy.load(averaged(average, checkpoint), average, layout.fill)
            trainer.masters.load(checkpoint.masters, layout.fill)
        load_state(trainer.optimizer, trainer.masters.parameters, checkpoint.optimizer, layout.place)
    except (TaskFault, KeyError, ValueError) as error:
        raise TaskFault("checkpoint", f"{folder} does not fit the job: {error}") from error
    job.version = state.version
    trainer.global_step = state.global_step
    trainer.guard.restore(state.gradient_norms)
    trainer.loss_scale.restore(state.loss_scale, state.clean)


def averaged(average: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """A checkpoint's values of an average, by parameter; nothing where it has none."""
    prefix = f"{average}/"
    return {
        name.removeprefix(prefix): tensor for name, tensor in checkpoint.averages.items() if name.startswith(prefix)
    }
