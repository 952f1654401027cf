"""From a live trainer to a checkpoint and back.

Owns what a checkpoint of a job holds and which checkpoints a job accepts: of the same base weights, with exactly the
parameters that it trains. Invariant: after `restore`, the next commit gives the bits it would have given.
"""

from pathlib import Path

import torch

from digend.engines.arrays import to_array
from digend.engines.checkpoints import (
    LORA,
    PIPELINE,
    Checkpoint,
    CheckpointState,
    checkpoint_folder,
    read_checkpoint,
    write_checkpoint,
)
from digend.engines.jobs import Job
from digend.engines.masters import AVERAGED
from digend.engines.optimizer import load_state, save_state
from digend.engines.policy import EMA
from digend.engines.protocols import TaskFault
from digend.engines.training import Trainer
from digend.wire.tasks import CheckpointResult, CheckpointTask
from digend.wire.tensors import Array


def save(job: Job, trainer: Trainer, task: CheckpointTask, runs_dir: Path) -> CheckpointResult:
    """Write weights, optimizer and counters; the last one also writes the whole pipeline, and an adapter by itself.

    Raises TaskFault("checkpoint").
    """
    if task.version != job.version:
        raise TaskFault("internal", f"checkpoint of version {task.version} asked for, but {job.version} is loaded")
    folder = checkpoint_folder(runs_dir, job.id, task.global_step)
    checkpoint = Checkpoint(
        CheckpointState(
            job=job.id,
            version=job.version,
            global_step=task.global_step,
            base_digest=job.base_digest,
            final=task.final,
            gradient_norms=trainer.guard.norms,
        ),
        {name: each.detach().cpu().contiguous() for name, each in job.policy.parameters.items()},
        save_state(trainer.optimizer, trainer.masters.parameters),
        {
            f"{average}/{name}": each.cpu().contiguous()
            for average in AVERAGED
            for name, each in job.policy.copies.get(average, {}).items()
        },
        trainer.masters.state(),
    )

    def extras(hidden: Path) -> None:
        """What evaluation saw: the moving average where there is one."""
        if task.final:
            with job.policy.using(EMA):
                job.model.save(str(hidden / PIPELINE))
                if job.policy.form == "lora":
                    job.model.save_adapter(str(hidden / LORA))

    digest = write_checkpoint(folder, checkpoint, job.config.checkpoint.keep, extras)
    return CheckpointResult(path=str(folder), digest=digest, pipeline=str(folder / PIPELINE) if task.final else None)


def restore(job: Job, trainer: Trainer, folder: str, version: int, digest: str = "") -> None:
    """Bring weights, optimizer and counters back. Raises TaskFault("checkpoint") that names what does not fit."""
    checkpoint = read_checkpoint(Path(folder), digest)
    state = checkpoint.state
    for name, found, wanted in (
        ("version", state.version, version),
        ("base model's digest", state.base_digest, job.base_digest),
    ):
        if found != wanted:
            raise TaskFault("checkpoint", f"{folder}: its {name} is {found}, the job's is {wanted}")
    try:
        with torch.no_grad():
            job.policy.load({name: to_array(tensor) for name, tensor in checkpoint.weights.items()})
            for average in AVERAGED:
                if average in job.policy.copies:
                    job.policy.load(averaged(average, checkpoint), average)
            trainer.masters.load(checkpoint.masters)
        load_state(trainer.optimizer, trainer.masters.parameters, checkpoint.optimizer)
    except (TaskFault, KeyError, ValueError) as error:
        raise TaskFault("checkpoint", f"{folder} does not fit the job: {error}") from error
    job.version = state.version
    trainer.global_step = state.global_step
    trainer.guard.restore(state.gradient_norms)


def averaged(average: str, checkpoint: Checkpoint) -> dict[str, Array]:
    """A checkpoint's values of an average, by parameter; nothing where it has none."""
    prefix = f"{average}/"
    return {
        name.removeprefix(prefix): to_array(tensor)
        for name, tensor in checkpoint.averages.items()
        if name.startswith(prefix)
    }
