"""`digenctl submit`: the job file is checked here first, so that a mistake is found before anything is sent."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from clients.api import Digend
from clients.output import Output
from clients.verb import dry, overriding, verb
from clients.words import plural
from digend.exitcodes import ExitCode
from digend.hub import is_hub_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from digend.job_check import JobInputs
    from digend.wire.replies import Submitted

EXAMPLE = """  digenctl submit configs/jobs/shapes-flow-grpo.toml --watch
  digenctl submit job.toml --check
  digenctl submit job.toml --priority 5 --dry-run
  digenctl submit job.toml --id sweep-3 --set training.learning_rate=1e-4 --set seed=3 --json"""


@verb(EXAMPLE, patient=True)
@click.argument("path", metavar="JOB.toml", type=click.Path())
@click.option("--id", "job", metavar="ID", help="The job's id; repeating the same submit is then safe.")
@overriding
@click.option("--check", "only_checked", is_flag=True, help="Check the file, submit nothing; needs no driver.")
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    show_default=True,
    help="The highest starts next.",
)
@dry
@click.option("--watch", "watched", is_flag=True, help="Follow the job until it is over.")
@click.option("--wait", "waited", is_flag=True, help="Wait in silence until the job is over.")
def command(
    driver: Digend,
    output: Output,
    path: str,
    job: str | None,
    overrides: tuple[str, ...],
    only_checked: bool,
    priority: int,
    dry_run: bool,
    watched: bool,
    waited: bool,
) -> int:
    """Submit a job file.

    Jobs that may use the same workers run one after another: by priority, then in fair order of users, then first come,
    first served; others run at the same time. Paths in the file, and in --set, are relative to the file. What it leaves
    out of [tracking] is taken from the settings of this box (digenctl config show tracking).
    --watch and --wait end with 0 where the job completes, with 1 where it fails or is cancelled.
    """
    from clients.site import site_tracking
    from clients.watching import wait, watch
    from digend.job_check import read_job

    tracking, inputs = site_tracking(), read_job(path, overrides)
    _warn(output, inputs)
    if only_checked:
        return _say_valid(output, path, inputs)
    submitted = driver.submit(path, job=job, overrides=overrides, priority=priority, dry_run=dry_run, tracking=tracking)
    about = _about(submitted)
    if dry_run:
        return _say_rehearsed(output, submitted)
    output.line(_sentence(submitted))
    if waited and not watched:
        return wait(driver, output, submitted.job, about=about)
    output.document_if_json(**about)
    if watched:
        return watch(driver, output, submitted.job)
    output.hint(f"the next step: digenctl watch {submitted.job}")
    return ExitCode.OK


def _about(submitted: "Submitted") -> dict[str, object]:
    return {
        "id": submitted.job,
        "created": submitted.created,
        "position": submitted.position,
        "state": submitted.state,
        "reason": submitted.reason,
    }


def _sentence(submitted: "Submitted") -> str:
    if not submitted.created:
        return f"job {submitted.job} was submitted before, with the same content"
    before = f", {submitted.position} before it" if submitted.position else ""
    return f"job {submitted.job} submitted{before}" + (f"; {submitted.reason}" if submitted.state == "queued" else "")


def _say_rehearsed(output: Output, submitted: "Submitted") -> ExitCode:
    output.document_if_json(**_about(submitted), dry_run=True)
    if submitted.created:
        reason = f": {submitted.reason}" if submitted.reason else ""
        output.line(f"nothing was submitted; it would be job {submitted.job}, {submitted.state}{reason}")
    else:
        output.line(f"nothing would be submitted: {_sentence(submitted)}, and is {submitted.state}")
    return ExitCode.OK


def _warn(output: Output, inputs: "JobInputs") -> None:
    """Of what the algorithm knows to go wrong, and of what is on the workers' boxes, perhaps, but not on this one."""
    for warning in inputs.warnings:
        output.hint(f"warning: {warning}")
    folder = inputs.config.model.path
    if not is_hub_id(folder) and not Path(folder).is_dir():
        output.hint(f"warning: model.path: {folder} is no folder here; the workers look for it at this very path")
    for where, complaint in _file_rewards(inputs):
        output.hint(f"warning: {where}.name: {complaint}")


def _file_rewards(inputs: "JobInputs") -> "Iterator[tuple[str, str]]":
    """Rewards from a file that this box could not load, or knows nothing of. Other boxes may score."""
    from clients.this_box import named_places
    from digend.config.loader import load_settings
    from digend.job_check import scorers
    from digend.rewards.files import complaint, is_file_reward

    named = [(where, scorer.name) for where, scorer in scorers(inputs.config) if is_file_reward(scorer.name)]
    places = named_places() if named else None
    folders = load_settings(places).config.reward_paths if places else []
    for where, name in named:
        if not folders:
            yield where, f"{name!r} was not looked for; --node NODE.toml names a box whose reward_paths have it"
        elif found := complaint(name, folders):
            yield where, f"by the settings of this box: {found}"


def _say_valid(output: Output, path: str, inputs: "JobInputs") -> ExitCode:
    data, steps = inputs.config.data, inputs.config.training.global_steps
    output.document_if_json(
        valid=True, name=inputs.config.name, num_prompts=len(inputs.prompts), warnings=inputs.warnings
    )
    output.line(
        f"{path} is valid: {plural(len(inputs.prompts), 'prompt')}, {plural(steps, 'global step')}, "
        f"{data.prompts_per_rollout} x {data.samples_per_prompt} samples a rollout"
    )
    return ExitCode.OK
