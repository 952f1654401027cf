"""`digenctl cancel`."""

import click

from clients.api import Digend
from clients.output import Output
from clients.verb import verb


@verb("  digenctl cancel sweep-3")
@click.argument("job", metavar="ID")
def command(driver: Digend, output: Output, job: str) -> None:
    """Cancel a job, by its ID or the beginning of one. What it has made stays; a job that is over is left alone."""
    whole = driver.job_id(job)
    state = driver.cancel(whole)
    output.document_if_json(id=whole, state=state)
    output.line(f"job {whole} is {state}")
