"""`digenctl watch`: a job's progress until it is over."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import verb


@verb("  digenctl watch\n  digenctl watch shapes --json | jq .record.body.reward_mean", patient=True)
@click.argument("job", metavar="[ID]", required=False, shell_complete=completing.jobs)
def command(driver: Digend, output: Output, job: str | None) -> int:
    """Follow a job until it is over; the newest where no ID (or beginning of one) is given.

    A progress bar on a terminal, one line a change elsewhere. Ctrl-C ends the watching, not the job.
    Ends with 0 where the job completes, with 1 where it fails or is cancelled.
    """
    from clients.watching import watch

    return watch(driver, output, driver.job_id(job))
