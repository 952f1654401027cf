"""`digenctl explain`: why TAG was inserted or skipped, and what became of it. Needs no driver for a run folder."""

import click

from clients import amounts, completing
from clients.api import Digend
from clients.output import Output
from clients.run_place import records_of
from clients.verb import verb

EXAMPLE = """\
  digenctl explain
  digenctl explain runs/shapes-flow-grpo-001 --global-step 2
  digenctl explain bubble 123 --job shapes
  digenctl explain bubble box/trainer/0@12.345 --json
"""


@verb(EXAMPLE, patient=True)
@click.argument("what", metavar="[JOB | bubble ID]", nargs=-1, shell_complete=completing.jobs)
@click.option(
    "--global-step",
    "step",
    type=amounts.GLOBAL_STEP,
    metavar="N",
    help="Decisions of this global step, not the last.",
)
@click.option("--job", metavar="JOB", help="Whose bubble; the newest's that has begun if none.")
def command(driver: Digend, output: Output, what: tuple[str, ...], step: int | None, job: str | None) -> None:
    """Explain the decisions of a job's strategy, or one bubble.

    JOB is an id, the beginning of one, or the folder of a run, for which no driver is asked; the newest
    that has begun if none.
    The ID of a bubble is a number that `digenctl explain JOB` lists, or WORKER@SECONDS.
    """
    name, bubble = _wanted(what, step, job)
    if bubble is None:
        _job(driver, output, name, step)
    else:
        _bubble(driver, output, name, bubble)


def _wanted(what: tuple[str, ...], step: int | None, job: str | None) -> tuple[str | None, str | None]:
    """The job and the bubble that are meant. Raises UsageError."""
    if what[:1] == ("bubble",):
        if len(what) != 2:
            raise click.UsageError("bubble: which one? digenctl explain JOB lists them")
        if step is not None:
            raise click.UsageError("--global-step is for a job, not for a bubble")
        return job, what[1]
    if len(what) > 1 or (what and job is not None):
        raise click.UsageError("explain takes one job, or: bubble ID")
    return (what[0] if what else job), None


def _job(driver: Digend, output: Output, job: str | None, step: int | None) -> None:
    from clients.explain_text import tell_job
    from clients.jobs import NotFound
    from digend.telemetry.explain import explain
    from digend.telemetry.trail import Trail

    trail = Trail(records_of(driver, job))
    explanation = explain(trail, step)
    if explanation is None:
        raise NotFound(f"no decision of global step {step} in job {trail.job}")
    if output.as_json:
        output.view(explanation)
    tell_job(output, explanation)


def _bubble(driver: Digend, output: Output, job: str | None, name: str) -> None:
    from clients.explain_text import bubble_lines
    from clients.jobs import NotFound
    from digend.telemetry.explain_bubble import explain_bubble
    from digend.telemetry.trail import Trail

    trail = Trail(records_of(driver, job))
    explanation = explain_bubble(trail, name)
    if explanation is None:
        raise NotFound(f"no bubble {name!r} in job {trail.job} (digenctl explain lists the longest)")
    if output.as_json:
        output.view(explanation)
    for line in bubble_lines(explanation):
        output.line(line)
