"""`digenctl status`: the one look that tells whether all is well."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from clients import waiting_bytes
from clients.api import Digend
from clients.output import Output, plain
from clients.verb import tabular, verb
from clients.verbs.nodes import COLUMNS, print_nodes
from clients.words import age, number, plural, share, size
from digend.exitcodes import ExitCode
from digend.wire.views import CLEAR_DATA, JobView, StatusView

BAD_NODE_STATES = ("torpid", "lost")
BAD_JOB_STATES = ("failed", "held")


@verb("  digenctl status\n  digenctl status -o worker,state,reason\n  digenctl status --json | jq .bubble_share")
@tabular(COLUMNS)
def command(driver: Digend, output: Output) -> ExitCode:
    """What the driver, its workers and the running job do.

    Ends with 3 where something is degraded: a worker torpid or lost, a job failed or held, a problem named.
    """
    status = driver.status()
    job = status.job or newest(driver.newest_jobs().jobs)
    if output.as_json:
        output.document(**plain(status), last_job=job)
    for line in lines(status, job):
        output.line(line)
    if job is None:
        output.hint("no jobs yet; the next step: digenctl submit JOB.toml")
    output.line()
    print_nodes(output, status.nodes)
    return ExitCode.DEGRADED if degraded(status, job) else ExitCode.OK


def newest(jobs: Sequence[JobView]) -> JobView | None:
    return max(jobs, key=lambda job: job.submitted_ns, default=None)


def degraded(status: StatusView, job: JobView | None) -> bool:
    """`job` runs, or is the last one that did."""
    bad_nodes = any(node.state in BAD_NODE_STATES for node in status.nodes)
    return bad_nodes or bool(status.problems) or (job is not None and job.state in BAD_JOB_STATES)


def lines(status: StatusView, job: JobView | None) -> Iterator[str]:
    yield f"driver   epoch {status.epoch}, up {age(status.uptime_s)}"
    yield f"job      {_job(job) if job else 'none'}"
    for other in status.jobs[1:]:
        yield f"job      {_job(other)}"
    if status.queued:
        yield f"queued   {plural(status.queued, 'job')}"
    yield f"SQ       {_depth(status.sq_depth, status.sq_oldest_s, status.sq_bytes)}"
    yield f"UQ       {_depth(status.uq_depth, status.uq_oldest_s, status.uq_bytes)}"
    for first, line in zip(chain(["tensors  "], repeat(" " * 9)), waiting_bytes.lines(status), strict=False):
        yield first + line
    yield f"bubbles  {share(status.bubble_share)}{' of worker time' if status.bubble_share is not None else ''}"
    if clear := sum(node.traffic == CLEAR_DATA for node in status.nodes):
        yield f"traffic  tensors of {plural(clear, 'worker')} go in the clear, on a network that was said to be trusted"
    for drain in status.drains:
        by = f" by {drain.by}" if drain.by else ""
        yield f"drained  {drain.target} for {age(drain.age_s)}{by}" + (f": {drain.why}" if drain.why else "")
    for problem in status.problems:
        yield f"problem  {problem}"


def _job(job: JobView) -> str:
    reason = f" ({job.reason})" if job.reason else ""
    ranks = f", {job.ranks} trainer ranks" if job.ranks > 1 else ""
    return (
        f"{job.id} {job.state}{reason}: global step {job.global_step} of {job.num_global_steps}, "
        f"policy version {job.policy_version}, reward {number(job.reward)}{ranks}"
    )


def _depth(depth: int, oldest_s: float | None, num_bytes: int) -> str:
    held = f", {size(num_bytes)}" if num_bytes else ""
    return f"{depth} waiting, the oldest for {age(oldest_s)}{held}" if depth else "empty"
