"""`digenctl priority`."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import dry, verb


@verb("  digenctl priority sweep-3 5\n  digenctl priority sweep-3 -- -1")
@click.argument("job", metavar="ID", shell_complete=completing.jobs)
@click.argument("priority", metavar="N", type=click.IntRange(-1000, 1000))
@dry
def command(driver: Digend, output: Output, job: str, priority: int, dry_run: bool) -> None:
    """Give a job, by its ID or the beginning of one, another priority: of queued jobs the highest starts next.

    0 is usual. Jobs of equal priority start in fair order: first those of whoever used least worker time lately, then
    first come, first served. A job that runs is not stopped for one of higher priority; `digenctl pause` does that.
    """
    from clients.asking import of_job, report

    changed = driver.set_priority(job, priority, dry_run=dry_run)
    report(output, changed, f"{of_job(changed)} (priority {priority})", dry_run=dry_run)
