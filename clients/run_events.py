"""Records of a run folder, for verbs that need no driver: `runs/ID/events.jsonl`, up to the first line that is torn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients.jobs import NotFound
from digend.wire.errors import Malformed
from digend.wire.records import Record

EVENTS = "events.jsonl"


def raw_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Each as the recorder wrote it, its body's fields beside `seq`, `at_ns` and `job`. Raises NotFound at once."""
    events = folder / EVENTS
    if not events.is_file():
        raise NotFound(f"no run at {folder}: {events} is missing")
    return _lines(events)


def _lines(events: Path) -> Iterator[dict[str, Any]]:
    with events.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                return
            yield record


def read_records(folder: Path) -> Iterator[Record]:
    """As the driver tells them. Raises NotFound; Malformed for what is no record of this version."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(Record)
    for number, fields in enumerate(raw_records(folder), 1):
        head = {name: fields.pop(name, None) for name in ("seq", "at_ns", "job")}
        try:
            yield adapter.validate_python({**head, "body": fields})
        except ValidationError as error:
            raise Malformed(f"{folder / EVENTS}, line {number}: {error.errors()[0]['msg']}") from error
