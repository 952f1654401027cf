"""Transitions of a story as rows. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from clients.columns import Column
from digend.wire.story import Transition


@dataclass(frozen=True, slots=True)
class Row:
    """A transition, with its time as it is shown."""

    time: str
    transition: Transition


COLUMNS = (
    Column("time", lambda row: row.time),
    Column("what", lambda row: row.transition.what),
    Column("worker", lambda row: row.transition.worker or "-"),
    Column("lease", lambda row: row.transition.lease or "-"),
    Column("cause", lambda row: row.transition.cause or "-"),
)


def utc(at_ns: int, digits: int = 3) -> str:
    """`2026-07-31 12:00:00.250Z`."""
    seconds, rest = divmod(at_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}.{rest // 10 ** (9 - digits):0{digits}d}Z" if digits else f"{moment}Z"


def rows(transitions: Sequence[Transition], *, absolute: bool) -> Iterator[Row]:
    """Times in seconds after the first transition, or as dates."""
    for each in transitions:
        time = utc(each.at_ns) if absolute else f"+{(each.at_ns - transitions[0].at_ns) / 1e9:.3f}"
        yield Row(time, each)
