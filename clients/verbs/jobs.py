"""`digenctl jobs`: one line a job."""

from clients.api import Digend
from clients.output import Output
from clients.verb import no_header, verb
from clients.words import age, number
from digend.wire.views import JobView

COLUMNS = ("JOB", "STATE", "STEP", "VERSION", "REWARD", "TOOK", "WHY")


@verb("  digenctl jobs\n  digenctl jobs --no-header | cut -d' ' -f1")
@no_header
def command(driver: Digend, output: Output) -> None:
    """List all jobs, in the order they were submitted."""
    jobs = driver.jobs()
    output.document_if_json(jobs=jobs)
    if not jobs:
        output.hint("no jobs yet; the next step: digenctl submit JOB.toml")
    else:
        output.table(COLUMNS, [_row(job) for job in jobs])


def _row(job: JobView) -> list[str]:
    took = None
    if job.started_ns is not None and job.finished_ns is not None:
        took = (job.finished_ns - job.started_ns) / 1e9
    return [
        job.id,
        job.state,
        f"{job.global_step}/{job.num_global_steps}",
        str(job.policy_version),
        number(job.reward),
        age(took),
        job.reason or "-",
    ]
