"""`digenctl wait`: for scripts."""

import click

from clients import amounts, completing
from clients.api import Digend
from clients.output import Output
from clients.verb import verb


@verb("  digenctl wait sweep-3 --timeout 3600 && echo done", patient=True)
@click.argument("job", metavar="[ID]", required=False, shell_complete=completing.jobs)
@click.option("--timeout", type=amounts.TIME_OR_NONE, help="Seconds; for ever if none.")
def command(driver: Digend, output: Output, job: str | None, timeout: float | None) -> int:
    """Wait until a job is over; the newest where no ID (or beginning of one) is given.

    Ends with 0 where the job completes, 1 where it fails or is cancelled, 75 where the time is up first.
    Ctrl-C ends the waiting, not the job.
    """
    from clients.watching import wait

    return wait(driver, output, driver.job_id(job), float("inf") if timeout is None else timeout)
