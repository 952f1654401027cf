"""`digenctl report`: where a job's report is."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from digend.exitcodes import ExitCode


@verb("  digenctl report\n  digenctl report shapes-001 --open\n  digenctl report runs/shapes-001 --json", patient=True)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completing.jobs)
@click.option("--open", "opened", is_flag=True, help="Open it in a browser.")
def command(driver: Digend, output: Output, job: str | None, opened: bool) -> ExitCode:
    """Say where a job's report is: curves, pictures, stages and what became of it, in one HTML file.

    JOB is an id, the beginning of one, or a run folder; the newest that has begun if none. Where the
    recorder runs on another box the path is told as host:path. Ends with 5 while there is no report; the first follows
    the first evaluation.
    """
    from clients.jobs import NotFound
    from clients.run_place import run_place

    place = run_place(driver, job)
    path = place.path / "report.html"
    there = path.is_file() if place.here else None
    if there is False:
        raise NotFound(f"no report of job {place.job} yet: {path} is written after its first evaluation")
    url = path.as_uri() if place.here else None
    output.document_if_json(job=place.job, host=place.host, path=str(path), here=place.here, url=url)
    output.line(place.shown(path))
    if not place.here:
        output.hint(f"it is on another box: scp {place.shown(path)} .")
    elif opened and url:
        click.launch(url)
    return ExitCode.OK
