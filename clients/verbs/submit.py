"""`digenctl submit`: the job file is checked here first, so that a mistake is found before anything is sent."""

import click

from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from digend.exitcodes import ExitCode

EXAMPLE = """  digenctl submit configs/jobs/shapes-flow-grpo.toml --watch
  digenctl submit job.toml --id sweep-3 --set training.learning_rate=1e-4 --set seed=3 --json"""


@verb(EXAMPLE, patient=True)
@click.argument("path", metavar="JOB.toml")
@click.option("--id", "job", metavar="ID", help="The job's id; repeating the same submit is then safe.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key; may be repeated.")
@click.option("--watch", "watched", is_flag=True, help="Follow the job until it is over.")
@click.option("--wait", "waited", is_flag=True, help="Wait in silence until the job is over.")
def command(
    driver: Digend,
    output: Output,
    path: str,
    job: str | None,
    overrides: tuple[str, ...],
    watched: bool,
    waited: bool,
) -> int:
    """Submit a job file.

    Jobs run one at a time, first in, first out. Paths in the file, and in --set, are relative to the file.
    --watch and --wait end with 0 where the job completes, with 1 where it fails or is cancelled.
    """
    from clients.watching import report_end, watch

    submitted = driver.submit(path, job=job, overrides=overrides)
    about = {"id": submitted.job, "created": submitted.created, "position": submitted.position}
    output.line(_sentence(submitted.job, submitted.created, submitted.position))
    if waited and not watched:
        return report_end(output, driver.wait(submitted.job), **about)
    output.document_if_json(**about)
    if watched:
        return watch(driver, output, submitted.job)
    output.hint(f"the next step: digenctl watch {submitted.job}")
    return ExitCode.OK


def _sentence(job: str, created: bool, position: int) -> str:
    if not created:
        return f"job {job} was submitted before, with the same content"
    return f"job {job} submitted" + (f", {position} before it" if position else "")
