"""A timeline as trace events: the JSON that ui.perfetto.dev and chrome://tracing open.

Owns the form of the events (Trace Event Format: "X" complete slices, "i" instants, "M" names, "C" counters, "s"/"t"/"f"
flows; times in microseconds). Knows no files but the one it writes. Invariants: the slices of a track nest or follow
on each other; every flow has a start, an end, and slices to bind to.

A node is a process, a worker a thread of it. A task is a slice around its stages, a switch of the trainer's mode an
instant where its task begins. What a worker stages while it works is a thread of its own, more than one where versions
overlap. The job has a process of its own: global steps, and the pauses that have a name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from digend.telemetry.timeline import Mark, Phase, Span, Timeline
from digend.telemetry.traceflows import flows
from digend.wire.records import TaskRecord

Event = dict[str, object]

_JOB = 1
_TRACKS = {"step": (1, "global steps"), "evaluation": (2, "evaluations"), "checkpoint": (3, "checkpoints")}


def trace_events(
    spans: Sequence[Span],
    phases: Sequence[Phase] = (),
    marks: Sequence[Mark] = (),
    job: str = "",
    stagings: Sequence[Span] = (),
) -> Iterator[Event]:
    """Names first, then slices by track and time, then flows. Times count from the first of all."""
    begins = [min(span.start_ns, span.task.start_ns) if span.task else span.start_ns for span in (*spans, *stagings)]
    origin = min([*begins, *(phase.start_ns for phase in phases)], default=0)
    staged = _in_turn(stagings)
    places = _places(dict.fromkeys(span.worker for span in (*spans, *staged)))
    yield from _names(places, phases, job)
    for phase in phases:
        yield from _of_phase(phase, origin)
    for worker, (process, thread) in places.items():
        for event in _of_worker([span for span in (*spans, *staged) if span.worker == worker], origin):
            yield {**event, "pid": process, "tid": thread}
    if phases or job:
        for mark in marks:
            yield _instant(mark, origin)
    for flow in flows(spans):
        process, thread = places[flow.worker]
        ends = {"bp": "e"} if flow.phase == "f" else {}
        yield {
            "ph": flow.phase,
            "name": "micro-batch",
            "cat": "flow",
            "id": flow.id,
            **ends,
            "pid": process,
            "tid": thread,
            "ts": _us(flow.at_ns - origin),
        }


def events_of(timeline: Timeline) -> Iterator[Event]:
    """Of all that a job's timeline has kept."""
    return trace_events(timeline.spans, timeline.phases, timeline.marks, timeline.job, timeline.stagings)


def write_trace(path: Path, events: Iterable[Event]) -> None:
    """One event a line. Raises OSError."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(trace_lines(events))


def trace_lines(events: Iterable[Event]) -> Iterator[str]:
    """The document, line by line."""
    yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
    comma = ""
    for event in events:
        yield comma + json.dumps(event, ensure_ascii=False, allow_nan=False)
        comma = ",\n"
    yield "\n]}\n"


def _places(workers: Iterable[str]) -> dict[str, tuple[int, int]]:
    """worker -> (process, thread): nodes in the order of their names, then workers in theirs."""
    nodes: dict[str, list[str]] = {}
    for worker in sorted(workers):
        nodes.setdefault(_node(worker), []).append(worker)
    return {
        worker: (_JOB + 1 + process, 1 + thread)
        for process, node in enumerate(sorted(nodes))
        for thread, worker in enumerate(nodes[node])
    }


def _node(worker: str) -> str:
    return worker.split("/")[0] if worker.count("/") > 1 else ""


def _names(places: Mapping[str, tuple[int, int]], phases: Sequence[Phase], job: str) -> Iterator[Event]:
    if phases or job:
        yield _name("process", _JOB, 0, f"job {job}".strip())
        yield {"ph": "M", "name": "process_sort_index", "pid": _JOB, "tid": 0, "args": {"sort_index": 0}}
        for track, title in sorted({_TRACKS[phase.kind] for phase in phases}):
            yield _name("thread", _JOB, track, title)
    for worker, (process, thread) in places.items():
        node = _node(worker)
        if thread == 1:
            yield _name("process", process, 0, f"node {node}" if node else "workers")
        yield _name("thread", process, thread, worker.removeprefix(f"{node}/"))


def _name(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _of_phase(phase: Phase, origin: int) -> Iterator[Event]:
    thread = _TRACKS[phase.kind][0]
    args = {"global_step": phase.number}
    yield {**_slice(phase.title, phase.kind, phase.start_ns, phase.end_ns, origin, args), "pid": _JOB, "tid": thread}
    if phase.reward is not None and phase.reward == phase.reward:
        reward: Event = {"ph": "C", "name": "reward", "pid": _JOB, "tid": 0, "ts": _us(phase.end_ns - origin)}
        yield {**reward, "args": {"mean": phase.reward}}


def _of_worker(spans: Sequence[Span], origin: int) -> Iterator[Event]:
    """A task is told before its stages."""
    told: TaskRecord | None = None
    for span in sorted(spans, key=lambda each: (each.start_ns, each.end_ns)):
        if span.task is not None and span.task is not told:
            told = span.task
            name = f"{told.task} {told.micro_batch}" if told.micro_batch >= 0 else told.task
            yield _slice(name, "task", told.start_ns, told.end_ns, origin, _task_args(told))
            if told.switched:
                yield _switch(told, origin)
        name = span.stage or (f"{span.kind}: {span.cause}" if span.cause else span.kind)
        args: dict[str, object] = {"cause": span.cause} if span.cause else {"what": span.title}
        yield _slice(name.replace("assist_", "TAG: "), span.kind, span.start_ns, span.end_ns, origin, args)


def _task_args(task: TaskRecord) -> dict[str, object]:
    args: dict[str, object] = {"lease": task.lease}
    if task.global_step >= 0:
        args["global_step"] = task.global_step + 1
    told = {"micro_batch": task.micro_batch, "policy_version": task.version}
    args |= {name: number for name, number in told.items() if number >= 0}
    return args | ({"samples": task.num_samples} if task.num_samples else {})


def _in_turn(stagings: Sequence[Span]) -> list[Span]:
    """On the tracks `WORKER (staging)`, `WORKER (staging 2)`, ...: the slices of one do not overlap."""
    ends: dict[str, list[int]] = {}
    told = []
    for span in sorted(stagings, key=lambda each: each.start_ns):
        free_at = ends.setdefault(span.worker, [])
        turn = next((at for at, end in enumerate(free_at) if end <= span.start_ns), len(free_at))
        free_at[turn : turn + 1] = [span.end_ns]
        told.append(replace(span, worker=f"{span.worker} (staging{f' {turn + 1}' if turn else ''})"))
    return told


def _switch(task: TaskRecord, origin: int) -> Event:
    """Of the trainer's mode, before a task that needs the other one."""
    name = f"switch to {'training' if task.task == 'update' else 'generating'}"
    args = {"estimated_ms": task.switch_ns / 1e6} if task.switch_ns else {}
    return {"ph": "i", "s": "t", "name": name, "cat": "switch", "ts": _us(task.start_ns - origin), "args": args}


def _instant(mark: Mark, origin: int) -> Event:
    at: Event = {"ts": max(_us(mark.at_ns - origin), 0.0), "pid": _JOB, "tid": 0}
    return {"ph": "i", "s": "g", "name": mark.title, "cat": mark.kind, **at}


def _slice(name: str, category: str, start_ns: int, end_ns: int, origin: int, args: Mapping[str, object]) -> Event:
    times = {"ts": _us(start_ns - origin), "dur": _us(end_ns - start_ns)}
    return {"ph": "X", "name": name, "cat": category, **times, "args": dict(args)}


def _us(ns: int) -> float:
    """Microseconds, exact to the nanosecond."""
    return round(ns / 1000, 3)
