"""From a live trainer to a checkpoint and back.

Owns what a checkpoint of a job holds, which ranks write it, and which checkpoints a job accepts: of the same base
weights, with exactly the parameters that it trains. Invariants: after `restore`, the next commit gives the bits it
would have given, whether one rank wrote it or several. Where a rank cannot write, or is lost, there is no checkpoint.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgpack
import torch
from safetensors import SafetensorError
from torch import Tensor

from digend.checkpoint_names import AVERAGES, MASTERS, OPTIMIZER, WEIGHTS
from digend.engines.checkpoints import (
    LORA,
    PIPELINE,
    REQUIRED,
    Checkpoint,
    CheckpointState,
    Entry,
    begin,
    checkpoint_folder,
    finish,
    tensors_in,
    write_tensors,
    writing,
)
from digend.engines.jobs import Job, load_job
from digend.engines.masters import AVERAGED
from digend.engines.optimizer import load_state, save_state
from digend.engines.policy import EMA
from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.outlines import opened
from digend.engines.ranks.peers import Peers
from digend.engines.stored import Part, Stored
from digend.engines.training import Trainer
from digend.models.spec import Model
from digend.wire.tasks import CheckpointResult, CheckpointTask, PrepareTask


def save(job: Job, trainer: Trainer, task: CheckpointTask, runs_dir: Path, context: Context) -> CheckpointResult:
    """Write weights, optimizer and counters; the last one also writes the whole pipeline, and an adapter by itself.

    Rank 0 says when it is a checkpoint. Raises TaskFault("checkpoint").
    """
    if task.version != job.version:
        raise TaskFault("internal", f"checkpoint of version {task.version} asked for, but {job.version} is loaded")
    folder = checkpoint_folder(runs_dir, job.id, task.global_step)
    with _new(folder, job.layout.peers) as hidden:
        written = _write_tensors(job, trainer, hidden, folder, context)
        if job.layout.peers.rank:
            return CheckpointResult(path=str(folder), digest="")
        with writing(folder):
            if task.final:
                _write_pipeline(job, hidden)
            digest = finish(hidden, folder, _state(job, trainer, task), written, job.config.checkpoint.keep)
    return CheckpointResult(path=str(folder), digest=digest, pipeline=str(folder / PIPELINE) if task.final else None)


@contextmanager
def _new(folder: Path, peers: Peers) -> Iterator[Path]:
    """The hidden folder that rank 0 made, whether this rank sees it or not. What is left of it goes with an error."""
    with peers.agreed():
        hidden = begin(folder) if peers.rank == 0 else folder
    hidden = folder.with_name(peers.share(hidden.name.encode()).decode())
    try:
        yield hidden
    except BaseException:
        if peers.rank == 0:
            shutil.rmtree(hidden, ignore_errors=True)
        raise


def _write_tensors(job: Job, trainer: Trainer, hidden: Path, folder: Path, context: Context) -> dict[str, Entry]:
    """A kind after the other, so that a rank has no more than one in host memory. On rank 0, what all have written."""
    layout, peers = job.layout, job.layout.peers
    writers, entries = _writers(hidden, peers), dict[str, Entry]()
    for kind, tensors in _tensors(job, trainer).items():
        if tensors or kind in REQUIRED:
            part = layout.part(tensors) if writers > 1 else Part(layout.whole(tensors, context))
            with peers.agreed(patient=True), writing(folder):
                if peers.rank < writers:
                    entries |= write_tensors(hidden, kind, part, peers.rank + 1, writers)
    told = peers.collect(msgpack.packb([(name, each.num_bytes, each.digest) for name, each in entries.items()]))
    return {name: Entry(size, digest) for packed in told for name, size, digest in msgpack.unpackb(packed)}


def _writers(hidden: Path, peers: Peers) -> int:
    """All ranks of the first replica, where each of them sees the folder that rank 0 made; else rank 0."""
    if peers.shards == 1:
        return 1
    sees = peers.rank < peers.shards and os.access(hidden, os.W_OK)
    return peers.shards if int(peers.add_up(torch.tensor([int(sees)]))) == peers.shards else 1


def _tensors(job: Job, trainer: Trainer) -> dict[str, Mapping[str, Tensor]]:
    """By kind; on every rank its part."""
    return {
        WEIGHTS: job.policy.parameters,
        OPTIMIZER: save_state(trainer.optimizer, trainer.masters.parameters),
        AVERAGES: {
            f"{average}/{name}": each
            for average in AVERAGED
            for name, each in job.policy.copies.get(average, {}).items()
        },
        MASTERS: trainer.masters.state(),
    }


def _state(job: Job, trainer: Trainer, task: CheckpointTask) -> CheckpointState:
    return CheckpointState(
        job=job.id,
        version=job.version,
        global_step=task.global_step,
        base_digest=job.base_digest,
        final=task.final,
        gradient_norms=trainer.guard.norms,
        loss_scale=trainer.loss_scale.value,
        clean=trainer.loss_scale.clean,
    )


def _write_pipeline(job: Job, folder: Path) -> None:
    """What evaluation saw: the moving average where there is one. Weights in shards are put into a model of their own,
    on the CPU."""
    if job.layout.generates_together:
        _write_model(_on_cpu(job, folder), job.policy.form, folder)
        return
    with job.policy.using(EMA):
        _write_model(job.model, job.policy.form, folder)


def _write_model(model: Model, form: str, folder: Path) -> None:
    model.save(str(folder / PIPELINE))
    if form == "lora":
        model.save_adapter(str(folder / LORA))


def _on_cpu(job: Job, folder: Path) -> Model:
    """With the tensors that were just written there."""
    task = PrepareTask(job=job.id, incarnation=job.incarnation, config=job.config.model_dump_json())
    fresh = load_job(task, job.config, "cpu")
    tensors = tensors_in(folder, [file.name for file in folder.iterdir()])
    fresh.policy.restore(averaged(EMA, tensors[AVERAGES]) or tensors[WEIGHTS], fresh.layout.fill)
    return fresh.model


def restore(job: Job, trainer: Trainer, folder: str, version: int, digest: str = "") -> None:
    """Bring weights, optimizer and counters back, however many ranks wrote them.

    Raises TaskFault("checkpoint") that names what does not fit.
    """
    peers = job.layout.peers
    checkpoint = opened(Path(folder), digest, peers)
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
            job.policy.restore(checkpoint.weights, layout.fill)
            for average in AVERAGED:
                if average in job.policy.copies:
                    job.policy.restore(averaged(average, checkpoint.averages), layout.fill, average)
            trainer.masters.load(checkpoint.masters, layout.fill)
        load_state(trainer.optimizer, trainer.masters.parameters, checkpoint.optimizer, layout.place)
    except (TaskFault, KeyError, ValueError, SafetensorError) as error:
        raise TaskFault("checkpoint", f"{folder} does not fit the job: {error}") from error
    job.version = state.version
    trainer.global_step = state.global_step
    trainer.guard.restore(state.gradient_norms)
    trainer.loss_scale.restore(state.loss_scale, state.clean)


def averaged(average: str, averages: Mapping[str, Stored]) -> dict[str, Stored]:
    """A checkpoint's values of an average, by parameter; nothing where it has none."""
    prefix = f"{average}/"
    return {name.removeprefix(prefix): each for name, each in averages.items() if name.startswith(prefix)}
