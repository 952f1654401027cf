"""A record as one line of JSON: `{"seq", "at_ns", "job", "kind", ...fields of the body}`.

Owns the text form of events.jsonl. Knows no files. Invariant: `decode(encode(record)) == record` and the
line holds no newline; figures that are not finite are the strings NaN, Infinity and -Infinity, because JSON
has no other word for them.
"""

import dataclasses
import json
import math

from pydantic import TypeAdapter

from digend.wire.records import Record

_RECORD = TypeAdapter(Record)
_HEAD = ("seq", "at_ns", "job")
_SPECIAL = {math.inf: "Infinity", -math.inf: "-Infinity"}

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def encode(record: Record) -> str:
    """The line, without its newline."""
    body = dataclasses.asdict(record.body)
    line = {"seq": record.seq, "at_ns": record.at_ns, "job": record.job, "kind": record.body.kind, **body}
    return json.dumps(_finite(line), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def decode(line: str | bytes) -> Record:
    """Raises ValueError where the line is torn or not a record of this version."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not fields.keys() >= set(_HEAD):
        raise ValueError("not a record")
    head = {name: fields.pop(name) for name in _HEAD}
    return _RECORD.validate_python({**head, "body": fields})


def _finite(value: object) -> Json:
    if isinstance(value, dict):
        return {str(key): _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _SPECIAL.get(value, "NaN")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} in a record")
