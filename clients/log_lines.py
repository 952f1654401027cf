"""Lines of `state/logs/NAME.log` as entries: when, how bad, of which process, about which job. Pure.

Both formats of `digend.telemetry.logs` are read. A line of neither (a traceback, a library's print) belongs to the
entry before it.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
_CONSOLE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)Z? \[(\w+) *\] (.*)")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`lines` as they lie in the file. `time` is in UTC, of the entry before where a file begins without one."""

    process: str
    time: datetime
    level: str
    lines: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)

    def is_about(self, job: str) -> bool:
        return self.fields.get("job") == job


def entries(process: str, lines: Iterable[str]) -> Iterator[Entry]:
    """Of one file, in order."""
    current = Entry(process=process, time=datetime.fromtimestamp(0, UTC), level="info", lines=())
    for line in lines:
        begun = _json(process, line) or _console(process, line)
        if begun is None:
            current = replace(current, lines=(*current.lines, line))
            continue
        if current.lines:
            yield current
        current = begun
    if current.lines:
        yield current


def since_of(text: str, now: datetime) -> datetime:
    """`90s`, `10m`, `2h`, `3d` before now, or a date: `2026-07-31`, `2026-07-31 12:00` (UTC). Raises ValueError."""
    if found := _SPAN.fullmatch(text.strip()):
        return now - timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _json(process: str, line: str) -> Entry | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
        time = datetime.fromisoformat(found["timestamp"].replace("Z", "+00:00"))
    except (ValueError, KeyError, AttributeError):
        return None
    return Entry(process=process, time=time, level=str(found.get("level", "info")), lines=(line,), fields=found)


def _console(process: str, line: str) -> Entry | None:
    found = _CONSOLE.fullmatch(line)
    if found is None:
        return None
    time = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    return Entry(process=process, time=time, level=found[2], lines=(line,), fields=_pairs(found[3]))


def _pairs(text: str) -> dict[str, str]:
    """`event` and the `key=value` after it."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    pairs = dict(word.split("=", 1) for word in words if re.match(r"[\w.]+=", word))
    return {"event": " ".join(word for word in words if not re.match(r"[\w.]+=", word)), **pairs}
