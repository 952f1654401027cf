"""A timeline as trace events, the JSON that Perfetto and chrome://tracing open."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from broker.schedule.report import Simulated

_MICROSECONDS = 1e6


def write_trace(path: Path, run: Simulated, workers: Sequence[str]) -> None:
    """One track a worker; the unit of the times is taken to be a second. Raises OSError."""
    document = {"traceEvents": list(_events(run, workers)), "displayTimeUnit": "ms"}
    path.write_text(json.dumps(document), encoding="utf-8")


def _events(run: Simulated, workers: Sequence[str]) -> Iterator[dict[str, object]]:
    tracks = {worker: at + 1 for at, worker in enumerate(workers)}
    for worker, track in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": track, "args": {"name": worker}}
    for span in run.timeline.spans:
        step = {"global_step": span.step}
        yield _complete(run, tracks[span.worker], span.label, "task", span.start, span.end, step)
    for bubble in run.timeline.bubbles:
        cause = {"cause": bubble.cause}
        yield _complete(run, tracks[bubble.worker], "bubble", "bubble", bubble.start, bubble.end, cause)


def _complete(
    run: Simulated, track: int, name: str, category: str, start: int, end: int, args: Mapping[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 1,
        "tid": track,
        "ts": run.seconds(start) * _MICROSECONDS,
        "dur": run.seconds(end - start) * _MICROSECONDS,
        "args": args,
    }
