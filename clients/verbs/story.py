"""`digenctl story`: every transition of one thing, with its cause."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.story_time import COLUMNS, rows, utc
from clients.verb import tabular, verb
from digend.exitcodes import ExitCode

EXAMPLE = """\
  digenctl story
  digenctl story shapes-001/3/2
  digenctl story shapes-001/3/2/PROMPT/0 --utc
  digenctl story box/generator/0
  digenctl story 1.42 --json
  digenctl story shapes-001@5"""


@verb(EXAMPLE)
@click.argument("subject", metavar="[ID]", required=False, shell_complete=completing.jobs_and_workers)
@click.option("--utc", "absolute", is_flag=True, help="Times as dates, not as seconds after the first.")
@tabular(COLUMNS)
def command(driver: Digend, output: Output, subject: str | None, absolute: bool) -> ExitCode:
    """Tell every transition of a thing, and what caused it; the newest job's where no ID is given.

    ID is a job, a worker (box/trainer/0), a micro-batch (JOB/ROLLOUT/MICRO-BATCH, as `digenctl queue` has them), a
    sample of one (and /PROMPT/INDEX after it), a lease (1.42), or a policy version (JOB@5). A job or a worker may be
    named by its beginning.

    Told from the driver's journal, which keeps the last four spans between two restarts without an open job. Of older
    jobs it tells what their records say: no leases.
    """
    from clients.story_subject import nothing_known, subject_of

    found = subject_of(driver, subject)
    transitions = tuple(driver.story(str(found)))
    if not transitions:
        raise nothing_known(driver, found)
    if output.as_json:
        output.document(id=str(found), kind=found.kind, transitions=transitions)
        return ExitCode.OK
    times = "" if absolute else f", in seconds after {utc(transitions[0].at_ns)}"
    output.line(f"{found.kind} {found}{times}")
    output.listing(COLUMNS, list(rows(transitions, absolute=absolute)))
    return ExitCode.OK
