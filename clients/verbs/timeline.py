"""`digenctl timeline`: what every worker did when, as text or as a trace. Needs no driver for a run folder."""

from typing import TYPE_CHECKING

import click

from clients import amounts, completing
from clients.api import Digend
from clients.columns import Column
from clients.output import Output
from clients.verb import tabular, verb
from clients.words import number, share

if TYPE_CHECKING:
    from clients.window import Window, WorkerTime
    from digend.telemetry.timeline import Timeline

EXAMPLE = """\
  digenctl timeline
  digenctl timeline shapes --global-step 3
  digenctl timeline runs/shapes-flow-grpo-001 --last -o worker,update,bubble,reason
  digenctl timeline shapes --perfetto trace.json      # then open it at ui.perfetto.dev
"""


def _seconds(*kinds: str) -> Column:
    return Column(kinds[0], lambda time: number(time.sum(kinds) or None, 2), wide=True)


def _reason(time: "WorkerTime") -> str:
    longest = sorted(time.causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {seconds:.2f}" for cause, seconds in longest) or "-"


COLUMNS = (
    Column("worker", lambda time: time.worker),
    Column("work", lambda time: number(time.work_s, 2)),
    Column("pauses", lambda time: number(time.sum(("load", "evaluate", "checkpoint")), 2)),
    Column("idle", lambda time: number(time.sum(("idle",)), 2)),
    Column("bubble", lambda time: number(time.sum(("bubble",)), 2)),
    Column("rest", lambda time: number(time.rest_s, 2)),
    Column("share", lambda time: share(time.bubble_share)),
    *(_seconds(kind) for kind in ("encode", "generate", "decode", "score", "update")),
    Column("tag", lambda time: number(time.sum(("assist",)) or None, 2), wide=True),
    Column("switch", lambda time: number(time.sum(("switch",)) or None, 2), wide=True),
    Column("staging", lambda time: number(time.staging_s or None, 2), wide=True),
    *(_seconds(kind) for kind in ("optimizer", "publish", "stage", "swap", "fetch", "load", "evaluate", "checkpoint")),
    Column("reason", _reason),
)


@verb(EXAMPLE, patient=True)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completing.jobs)
@click.option("--global-step", type=amounts.GLOBAL_STEP, metavar="N", help="This global step only.")
@click.option("--last", is_flag=True, help="The last global step that is closed only.")
@click.option("--perfetto", type=click.Path(dir_okay=False), metavar="FILE", help="Write a trace for ui.perfetto.dev.")
@tabular(COLUMNS)
def command(
    driver: Digend, output: Output, job: str | None, global_step: int | None, last: bool, perfetto: str | None
) -> None:
    """Show what every worker did when: a chart, and seconds of work, pauses, idle time and bubbles.

    JOB is an id, the beginning of one, or the folder of a run, for which no driver is asked; the newest
    that has begun if none.
    SHARE is that of bubbles, REASON their causes with seconds, REST what driver and wire took. SWITCH (-o wide) is the
    trainer's between training and generating; STAGING is of policy versions that came while the worker worked.

    With --perfetto the chosen time goes to a file: every task, its stages, and arrows from where a micro-batch was
    generated to its scoring and its update.
    """
    from clients.run_place import records_of
    from clients.window import window_of
    from digend.telemetry.timeline import Timeline

    if last and global_step is not None:
        raise click.UsageError("--last and --global-step are two answers to one question: give one")
    timeline = Timeline(limit=None)
    for record in records_of(driver, job):
        timeline.add(record)
    window = window_of(timeline, global_step, last)
    if perfetto is not None:
        _write(output, perfetto, timeline, window)
    else:
        _tell(output, timeline.job, window)


def _write(output: Output, path: str, timeline: "Timeline", window: "Window") -> None:
    from pathlib import Path

    from digend.telemetry.trace import trace_events, write_trace

    phases = [each for each in timeline.phases if each.end_ns > window.start_ns and each.start_ns < window.end_ns]
    marks = [mark for mark in timeline.marks if window.start_ns <= mark.at_ns <= window.end_ns]
    try:
        write_trace(Path(path), trace_events(window.spans, phases, marks, timeline.job, window.stagings))
    except OSError as error:
        raise click.UsageError(f"--perfetto {path}: {error.strerror}") from error
    output.document_if_json(job=timeline.job, file=path, spans=len(window.spans))
    output.line(f"{path}: {window.title} of job {timeline.job}, {len(window.spans)} spans; open it at ui.perfetto.dev")


def _tell(output: Output, job: str, window: "Window") -> None:
    from shutil import get_terminal_size

    from clients.chart import chart
    from clients.window import times_of

    pieces, workers = window.pieces(), window.workers
    staged = window.staged()
    times = [times_of(pieces, worker, window.start_ns, window.end_ns, staged) for worker in workers]
    if output.as_json:
        output.document(job=job, window=window.title, seconds=window.seconds, workers=times, spans=_spans(window))
        return
    if not pieces:
        output.hint(f"job {job} has done nothing yet")
        return
    since = (window.start_ns - window.origin_ns) / 1e9
    output.line(f"job {job}, {window.title}: {window.seconds:.2f} s from {since:.2f} s on")
    output.line()
    width = get_terminal_size().columns
    for line in chart(pieces, window.start_ns, window.end_ns, workers, f"{window.seconds:.2f} s", width, staged):
        output.line(line)
    output.line()
    output.listing(COLUMNS, times)


def _spans(window: "Window") -> list[dict[str, object]]:
    behind = set(window.stagings)
    return [
        {
            "worker": span.worker,
            "kind": span.kind,
            "stage": span.stage,
            "cause": span.cause,
            "title": span.title,
            "background": span in behind,
            "from": (span.start_ns - window.origin_ns) / 1e9,
            "to": (span.end_ns - window.origin_ns) / 1e9,
        }
        for span in (*window.spans, *window.stagings)
    ]
