"""Following a job on the screen: a bar on a terminal, lines in a pipe, a document a record with --json."""

from collections.abc import Mapping

from clients.api import Digend
from clients.output import Output
from clients.story import line_of, run_folder
from digend.exitcodes import ExitCode
from digend.wire import records as r
from digend.wire.views import JobDetail

INTERRUPTED = 128 + 2
"""As shells say that SIGINT ended a program."""


def watch(driver: Digend, output: Output, job: str) -> int:
    """Follows a job, by its whole id, to its end. Ctrl-C ends the watching, never the job."""
    try:
        if output.on_terminal:
            _with_bar(driver, job)
        else:
            _as_lines(driver, output, job)
    except KeyboardInterrupt:
        output.hint(
            f"\nstopped watching; job {job} goes on (again: digenctl watch {job}, end it: digenctl cancel {job})"
        )
        return INTERRUPTED
    return report_end(output, driver.job(job))


def wait(
    driver: Digend,
    output: Output,
    job: str,
    timeout_s: float = float("inf"),
    about: Mapping[str, object] | None = None,
) -> int:
    """Waits for a job, by its whole id, in silence. Ctrl-C ends the waiting, never the job. `about`: as below."""
    now = driver.job(job).job
    if now.state == "paused":
        output.hint(
            f"job {job} is paused{f': {now.reason}' if now.reason else ''}; digenctl resume {job} lets it go on"
        )
    try:
        view = driver.wait(job, timeout_s)
    except KeyboardInterrupt:
        output.hint(f"\nstopped waiting; job {job} goes on (again: digenctl wait {job}, end it: digenctl cancel {job})")
        return INTERRUPTED
    return report_end(output, driver.job(view.id), **(about or {}))


def report_end(output: Output, detail: JobDetail, **about: object) -> ExitCode:
    """Says how a job ended and where to look, and that as an exit code. `about` goes before it into the document."""
    view = detail.job
    if output.as_json:
        output.document(**about, job=view)
    else:
        reason = f": {view.reason}" if view.reason else ""
        output.line(f"job {view.id} {view.state} at global step {view.global_step}{reason}")
        if folder := run_folder(detail):
            output.hint(f"look at {folder}/report.html")
    return ExitCode.OK if view.state == "completed" else ExitCode.TARGET_FAILED


def _as_lines(driver: Digend, output: Output, job: str) -> None:
    for record in driver.follow(job):
        if output.as_json:
            output.document(record=record)
        elif line := line_of(record.body):
            output.line(line)


def _with_bar(driver: Digend, job: str) -> None:
    from clients.bar import Bar

    with Bar(job, driver.job(job).job.num_global_steps) as bar:
        for record in driver.follow(job):
            bar.add(record.body)
            line = line_of(record.body)
            if line and not isinstance(record.body, r.StepRecord):
                bar.say(line)
            if isinstance(record.body, r.StepRecord):
                bar.set_bubbles(_bubbles(driver, job))


def _bubbles(driver: Digend, job: str) -> float | None:
    status = driver.status()
    return status.bubble_share if status.job is not None and status.job.id == job else None
