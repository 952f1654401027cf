"""`digenctl resume`."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import dry, verb


@verb("  digenctl resume sweep-3\n  digenctl resume sweep-3 --dry-run")
@click.argument("job", metavar="ID", shell_complete=completing.jobs)
@dry
def command(driver: Digend, output: Output, job: str, dry_run: bool) -> None:
    """Put a paused job, by its ID or the beginning of one, back into the queue.

    A pause that has not come yet is taken back. A job that is held because it skipped too many global steps goes on.
    Any other is left alone.
    """
    from clients.asking import of_job, report

    changed = driver.resume(job, dry_run=dry_run)
    report(output, changed, of_job(changed), dry_run=dry_run)
