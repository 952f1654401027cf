"""`digenctl jobs`: one line a job."""

import click

from clients.api import Digend
from clients.columns import Column
from clients.output import Output
from clients.verb import tabular, verb
from clients.words import age, instant, number, plural
from digend.wire.views import JobView


def took(job: JobView) -> float | None:
    """Seconds from start to end, of a job that is over."""
    if job.started_ns is None or job.finished_ns is None:
        return None
    return (job.finished_ns - job.started_ns) / 1e9


COLUMNS = (
    Column("id", lambda job: job.id),
    Column("name", lambda job: job.name, wide=True),
    Column("state", lambda job: job.state),
    Column("step", lambda job: f"{job.global_step}/{job.num_global_steps}"),
    Column("version", lambda job: str(job.policy_version)),
    Column("parent", lambda job: f"{job.parent} at {job.parent_step}" if job.parent else "-", wide=True),
    Column("ranks", lambda job: str(job.ranks), wide=True),
    Column("incarnation", lambda job: str(job.incarnation), wide=True),
    Column("reward", lambda job: number(job.reward)),
    Column("took", lambda job: age(took(job))),
    Column("submitted", lambda job: instant(job.submitted_ns), wide=True),
    Column("started", lambda job: instant(job.started_ns), wide=True),
    Column("finished", lambda job: instant(job.finished_ns), wide=True),
    Column("reason", lambda job: job.reason or "-"),
)


@verb("  digenctl jobs\n  digenctl jobs -o id,state,reason\n  digenctl jobs --all --no-header -o id | head -1")
@click.option("--all", "every", is_flag=True, help="Also those that were submitted before the newest 200.")
@tabular(COLUMNS)
def command(driver: Digend, output: Output, every: bool) -> None:
    """List jobs, in the order they were submitted, each with the REASON why it does not run.

    REASON of a job that ended says why it ended so.
    """
    page = driver.newest_jobs()
    earlier = 0 if every else page.earlier
    jobs = driver.jobs() if every and page.earlier else page.jobs
    output.document_if_json(jobs=jobs, earlier=earlier)
    if not jobs:
        output.hint("no jobs yet; the next step: digenctl submit JOB.toml")
    else:
        output.listing(COLUMNS, jobs)
    if earlier:
        output.hint(f"and {plural(earlier, 'earlier job')}: digenctl jobs --all")
