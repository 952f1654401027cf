"""`digenctl pause`."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import brief, dry, verb


@verb("  digenctl pause sweep-3 -m 'the GPUs are needed till noon'\n  digenctl pause sweep-3 --dry-run")
@click.argument("job", metavar="ID", shell_complete=completing.jobs)
@click.option(
    "-m", "--message", "why", default="", callback=brief, metavar="WHY", help="Shown to whoever looks at the job."
)
@dry
def command(driver: Digend, output: Output, job: str, why: str, dry_run: bool) -> None:
    """Pause a job, by its ID or the beginning of one, so that others have its workers.

    It finishes the open global step (the rollout, where one feeds several), writes a checkpoint and leaves its workers.
    `digenctl resume` puts it back into the queue; it goes on from there as if it had never stopped.
    """
    from clients.asking import of_job, report

    changed = driver.pause(job, why, dry_run=dry_run)
    report(output, changed, of_job(changed), dry_run=dry_run)
