"""`digenctl export`: what a job has learned, as files for stock diffusers."""

from pathlib import Path

import click

from clients import amounts, completing
from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from clients.words import plural
from digend.checkpoint_names import NoCheckpoint, checkpoint_of
from digend.config.errors import ConfigError, Problem
from digend.exitcodes import ExitCode
from digend.extras import lacking

EXAMPLE = """  digenctl export shapes-001 my-pipeline
  digenctl export shapes-001 --global-step 10 --ema my-average
  digenctl export runs/flux-lora-002 --merge my-flux"""


@verb(EXAMPLE, patient=True)
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--global-step", type=amounts.COUNT, help="Of which checkpoint; the newest if none.")
@click.option("--ema", is_flag=True, help="The moving average instead of the weights.")
@click.option("--merge", is_flag=True, help="Of a LoRA: the pipeline with it merged in, not the adapter alone.")
def command(
    driver: Digend, output: Output, job: str, folder: Path, global_step: int | None, ema: bool, merge: bool
) -> ExitCode:
    """Write a checkpoint's weights to DIR: a pipeline for from_pretrained, or an adapter for load_lora_weights.

    JOB is an id, the beginning of one, or a run folder. The run folder and the model's folder must be on this box; no
    GPU is used. DIR must not exist, or be empty.
    """
    from clients.jobs import NotFound
    from clients.run_place import run_place

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.BadParameter(f"{folder} exists and is not empty: name a new folder", param_hint="DIR")
    place = run_place(driver, job)
    if not place.here:
        raise NotFound(f"the run folder of {place.job} is on another box: run this there ({place.shown(place.path)})")
    try:
        checkpoint_of(place.path, global_step)  # before torch is imported, which takes seconds
    except NoCheckpoint as error:
        raise NotFound(str(error)) from error
    if missing := lacking():
        raise ConfigError([Problem(where="", key="", message=missing)])
    from digend.engines.exporting import CannotExport, export

    try:
        made = export(place.path, folder, global_step=global_step, ema=ema, merge=merge)
    except CannotExport as error:
        raise NotFound(str(error)) from error
    use = "load_lora_weights" if made.form == "lora" else "from_pretrained"
    output.document_if_json(job=place.job, exported=made)
    output.line(f"{made.folder}: {plural(made.num_tensors, 'tensor')} of global step {made.global_step}, for {use}")
    return ExitCode.OK
