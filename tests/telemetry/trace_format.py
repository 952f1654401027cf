"""The Trace Event Format, as far as it is used: what a viewer relies on, checked on a list of events."""

from collections.abc import Iterable, Mapping
from typing import Any

Event = Mapping[str, Any]

REQUIRED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "cat", "pid", "ts", "s"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "t": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}
_ROUNDING_US = 0.002


def check_trace(events: Iterable[Event]) -> None:
    """AssertionError for what a viewer would draw wrongly or not at all."""
    told = list(events)
    for event in told:
        assert event.keys() >= REQUIRED[event["ph"]], event
        assert all(event.get(name, 0) >= 0 for name in ("ts", "dur")), event
        assert all(isinstance(event.get(name, 0), int) for name in ("pid", "tid")), event
    _check_names(told)
    _check_nesting(told)
    _check_flows(told)


def _check_names(events: list[Event]) -> None:
    """Every process and thread that has a slice has a name, and each name is told once."""
    threads = [(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"]
    processes = [event["pid"] for event in events if event["name"] == "process_name"]
    assert len(set(threads)) == len(threads)
    assert len(set(processes)) == len(processes)
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= set(threads)
    assert {event["pid"] for event in events} <= set(processes)


def _check_nesting(events: list[Event]) -> None:
    """Slices of a track contain each other or follow on each other; none sticks out of the one it began in."""
    tracks: dict[tuple[int, int], list[Event]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        ends: list[float] = []
        for event in track:
            while ends and event["ts"] >= ends[-1] - _ROUNDING_US:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + _ROUNDING_US, event
            ends.append(end)


def _check_flows(events: list[Event]) -> None:
    """An arrow has one start, then its steps, then one end, later each, and a slice around every point."""
    flows: dict[int, list[Event]] = {}
    for event in events:
        if event["ph"] in ("s", "t", "f"):
            flows.setdefault(event["id"], []).append(event)
            assert any(_around(slice_, event) for slice_ in events if slice_["ph"] == "X"), event
    for flow in flows.values():
        assert [point["ph"] for point in flow] == ["s", *["t"] * (len(flow) - 2), "f"]
        times = [point["ts"] for point in flow]
        assert times == sorted(times)


def _around(slice_: Event, point: Event) -> bool:
    same = (slice_["pid"], slice_["tid"]) == (point["pid"], point["tid"])
    return same and bool(slice_["ts"] <= point["ts"] <= slice_["ts"] + slice_["dur"])
