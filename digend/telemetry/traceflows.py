"""Arrows of a trace: where a micro-batch went, from who generated a part of it to who scored that, to the update.

Owns the joining of tasks. Invariant: an arrow never points back in time. Fragments have no name in a record, so a
generated part is joined with the first score of its micro-batch that began after it and that no other part took.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from digend.telemetry.timeline import Span
from digend.wire.records import TaskRecord

_KINDS = {"generate": "generate", "assist": "generate", "score": "score", "update": "update"}

MicroBatch = dict[str, list[TaskRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPoint:
    """A point of arrow `id` in the middle of a task. phase: "s" its start, "t" on its way, "f" its end."""

    id: int
    phase: str
    worker: str
    at_ns: int


def flows(spans: Sequence[Span]) -> Iterator[FlowPoint]:
    """Of all that was generated and is part of an update."""
    number = 0
    for batch in _micro_batches(spans):
        scores = sorted(batch.get("score", ()), key=lambda task: task.start_ns)
        for made in sorted(batch.get("generate", ()), key=lambda task: task.end_ns):
            scored = next((score for score in scores if score.start_ns >= made.end_ns), None)
            if scored is not None:
                scores.remove(scored)
            since = (scored or made).end_ns
            update = next((task for task in batch.get("update", ()) if task.start_ns >= since), None)
            path = [task for task in (made, scored, update) if task is not None]
            if len(path) > 1:
                number += 1
                yield from _points(number, path)


def _points(number: int, path: Sequence[TaskRecord]) -> Iterator[FlowPoint]:
    phases = ["s", *["t"] * (len(path) - 2), "f"]
    for phase, task in zip(phases, path, strict=True):
        yield FlowPoint(id=number, phase=phase, worker=task.worker, at_ns=(task.start_ns + task.end_ns) // 2)


def _micro_batches(spans: Sequence[Span]) -> list[MicroBatch]:
    """Tasks by micro-batch. One that was made again after a restart has the tasks of both lives."""
    tasks = {(span.task.lease, span.task.start_ns): span.task for span in spans if span.task is not None}
    batches: dict[tuple[int, int], MicroBatch] = {}
    for task in tasks.values():
        if task.micro_batch >= 0 and task.task in _KINDS:
            kinds = batches.setdefault((task.global_step, task.micro_batch), {})
            kinds.setdefault(_KINDS[task.task], []).append(task)
    return list(batches.values())
