"""What a run has learned, as files that stock diffusers loads: a whole pipeline, or an adapter alone.

Owns which checkpoint of a run that is, and the folder, which is written whole or not at all. Needs no cluster: the run
folder and the model's folder suffice.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from digend.checkpoint_names import NoCheckpoint, checkpoint_of
from digend.config.loader import load_job as load_job_file
from digend.engines.checkpoints import Checkpoint, read_checkpoint
from digend.engines.jobs import Job, load_job
from digend.engines.policy import EMA
from digend.engines.protocols import TaskFault
from digend.engines.restoring import averaged
from digend.wire.tasks import PrepareTask

ORIGIN = "digend.json"


class CannotExport(Exception):
    """Nothing was written; the message says what to ask for instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """`form`: pipeline (for `from_pretrained`) or lora (for `load_lora_weights`)."""

    folder: Path
    form: str
    global_step: int
    version: int
    num_tensors: int


def export(run: Path, folder: Path, *, global_step: int | None, ema: bool, merge: bool) -> Exported:
    """Write the weights of a checkpoint of `run`, of the newest where no global step is given, to a new `folder`.

    A LoRA run gives the adapter, or with `merge` the pipeline with it merged in, W + B A alpha / rank. `ema`: the
    moving average in place of the weights. Raises CannotExport, ConfigError for the run's job file, and OSError where
    `folder` is not empty or cannot be written.
    """
    try:
        source = checkpoint_of(run, global_step)
        checkpoint = read_checkpoint(source)
        tensors = averaged(EMA, checkpoint.averages) if ema else checkpoint.weights
        if not tensors:
            raise CannotExport(f"{source} holds no moving average: the job has no training.ema_decay")
        job = _loaded(run, checkpoint)
        job.policy.restore(tensors, job.layout.fill)
    except (NoCheckpoint, TaskFault) as error:
        raise CannotExport(str(error)) from error
    form = "lora" if job.policy.form == "lora" and not merge else "pipeline"
    _write(job, folder, form, {"checkpoint": str(source), "ema": ema, **_origin(checkpoint)})
    state = checkpoint.state
    return Exported(
        folder=folder, form=form, global_step=state.global_step, version=state.version, num_tensors=len(tensors)
    )


def _loaded(run: Path, checkpoint: Checkpoint) -> Job:
    config = load_job_file(run / "job.toml")
    # Its weights come from the checkpoint; the adapter that it started from may be gone.
    config = config.model_copy(update={"training": config.training.model_copy(update={"init_adapter": None})})
    task = PrepareTask(job=run.name, incarnation=0, config=config.model_dump_json())
    job = load_job(task, config, "cpu")
    if job.base_digest != checkpoint.state.base_digest:
        trained_on = checkpoint.state.base_digest
        raise CannotExport(f"{config.model.path} has the digest {job.base_digest}, the run was trained on {trained_on}")
    return job


def _origin(checkpoint: Checkpoint) -> dict[str, object]:
    state = checkpoint.state
    return {
        "job": state.job,
        "global_step": state.global_step,
        "version": state.version,
        "base_digest": state.base_digest,
    }


def _write(job: Job, folder: Path, form: str, origin: dict[str, object]) -> None:
    """Into a folder beside it, then renamed."""
    hidden = folder.absolute().with_name(f".unfinished-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    try:
        job.model.save_adapter(str(hidden)) if form == "lora" else job.model.save(str(hidden))
        (hidden / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", "utf-8")
        if folder.exists():
            folder.rmdir()
        hidden.rename(folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
