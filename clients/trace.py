"""A simulated run as a trace: its ticks made spans, which `digend.telemetry.trace` writes as it does those of a job."""

from collections.abc import Iterator
from pathlib import Path

from broker.schedule.report import Simulated
from digend.telemetry.timeline import Span
from digend.telemetry.trace import trace_events, write_trace


def write_simulated(path: Path, run: Simulated) -> None:
    """One track a worker; the unit of the times is taken to be a second. Raises OSError."""
    write_trace(path, trace_events(list(_spans(run))))


def _spans(run: Simulated) -> Iterator[Span]:
    for span in run.timeline.spans:
        yield Span(
            worker=span.worker,
            start_ns=_ns(run, span.start),
            end_ns=_ns(run, span.end),
            kind=span.label,
            title=f"{span.label} of global step {span.step}",
            stage=span.label,
        )
    for bubble in run.timeline.bubbles:
        yield Span(
            worker=bubble.worker,
            start_ns=_ns(run, bubble.start),
            end_ns=_ns(run, bubble.end),
            kind="bubble",
            title=f"bubble: {bubble.cause}",
            cause=bubble.cause,
        )


def _ns(run: Simulated, ticks: int) -> int:
    return round(run.seconds(ticks) * 1e9)
