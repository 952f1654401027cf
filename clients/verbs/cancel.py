"""`digenctl cancel`."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import dry, verb
from digend.wire.requests import After

EXAMPLE = """  digenctl cancel sweep-3
  digenctl cancel sweep-3 --after global-step
  digenctl cancel sweep-3 --dry-run"""


@verb(EXAMPLE)
@click.argument("job", metavar="ID", shell_complete=completing.jobs)
@click.option(
    "--after",
    type=click.Choice(["now", "micro-batch", "global-step"]),
    default="now",
    show_default=True,
    help="global-step: finish the open one, with a checkpoint; micro-batch: let running tasks end.",
)
@dry
def command(driver: Digend, output: Output, job: str, after: After, dry_run: bool) -> None:
    """Cancel a job, by its ID or the beginning of one. What it has made stays; a job that is over is left alone."""
    from clients.asking import of_job, report

    changed = driver.cancel(job, after=after, dry_run=dry_run)
    report(output, changed, of_job(changed), dry_run=dry_run)
