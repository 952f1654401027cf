"""`digenctl fork`: a new job that goes on from a checkpoint of another one."""

import click

from clients import amounts, completing
from clients.api import Digend
from clients.output import Output
from clients.verb import dry, overriding, verb
from digend.exitcodes import ExitCode

EXAMPLE = """  digenctl fork shapes-001 --global-step 10 --set training.learning_rate=1e-4
  digenctl fork shapes-001 --global-step 10 --set training.global_steps=40 --id longer --watch
  digenctl fork shapes-001 --global-step 10 --set seed=3 --json"""


@verb(EXAMPLE, patient=True)
@click.argument("parent", metavar="JOB", shell_complete=completing.jobs)
@click.option("--global-step", "global_step", type=amounts.GLOBAL_STEP, required=True, help="Of which checkpoint.")
@overriding
@click.option("--id", "job", metavar="ID", help="The new job's id; repeating the same fork is then safe.")
@dry
@click.option("--watch", "watched", is_flag=True, help="Follow the new job until it is over.")
def command(
    driver: Digend,
    output: Output,
    parent: str,
    global_step: int,
    overrides: tuple[str, ...],
    job: str | None,
    dry_run: bool,
    watched: bool,
) -> int:
    """Submit JOB's file again, with changes, as a job that starts from JOB's checkpoint of a global step.

    Weights, optimizer, averages, policy version and the place among the prompts are taken over; global steps go on from
    there. A key that makes the checkpoint unusable is refused. Paths in --set are relative to this folder. A wrong
    --global-step names the checkpoints there are.
    """
    from clients.watching import watch

    whole = driver.job_id(parent)
    made = driver.fork(whole, global_step, job=job, overrides=overrides, dry_run=dry_run)
    about = {"id": made.job, "created": made.created, "position": made.position, "parent": whole}
    output.document_if_json(**about, global_step=global_step, dry_run=dry_run)
    if dry_run:
        output.line(f"nothing was submitted; it would be job {made.job}, {made.state}")
        return ExitCode.OK
    if not made.created:
        output.line(f"job {made.job} was forked before, with the same content")
    else:
        output.line(f"job {made.job} goes on from global step {global_step} of {whole}")
    if watched:
        return watch(driver, output, made.job)
    output.hint(f"the next step: digenctl watch {made.job}")
    return ExitCode.OK
