"""The prompts file: text, or a table whose other columns reach the reward. A prompt is known by its place in the file.

Owns the four formats, by the file's ending: `.jsonl`, `.csv` and `.parquet` have a column of prompts and any others;
every other ending is UTF-8 text, one prompt a line. Values of other columns become strings, as a reward gets them.
"""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from digend.config.errors import ConfigError, Problem, nearest
from digend.config.source import read_text

COLUMN = "prompt"

_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt. `metadata`: the other columns of its row."""

    text: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class _BadRow(Exception):
    """Row (from 1; 0: the whole file) and what is wrong with it."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        self.message = message


def read_prompts(path: str) -> list[PromptRow]:
    """The prompts in order, stripped; of text, blank lines and lines that begin with # are skipped.

    Raises ConfigError that names the row: no such file, not UTF-8 (names the byte), not of its format, no column
    `prompt` (names the nearest), no prompt in it.
    """
    read = _FORMATS.get(Path(path).suffix.lower(), _lines)
    try:
        prompts = list(read(path))
    except _BadRow as error:
        place = f"row {error.row}: " if error.row else ""
        raise ConfigError([Problem(where=path, key="", message=place + error.message)]) from None
    if not prompts:
        raise ConfigError([Problem(where=path, key="", message="no prompts: expected one a line")])
    return prompts


def _lines(path: str) -> Iterator[PromptRow]:
    for line in _each_line(path):
        if (text := line.strip()) and not text.startswith("#"):
            yield PromptRow(text)


def _each_line(path: str) -> Iterator[str]:
    """Not splitlines, which ends a line at form feeds and separators of Unicode too: a prompt may have them."""
    yield from StringIO(read_text(path), newline=None)


def _jsonl(path: str) -> Iterator[PromptRow]:
    for number, line in enumerate(_each_line(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise _BadRow(number, f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise _BadRow(number, f"expected an object with a {COLUMN!r}, found {line.strip()[:40]}")
        yield _row(number, row)


def _csv(path: str) -> Iterator[PromptRow]:
    reader = csv.DictReader(StringIO(read_text(path), newline=""), strict=True)
    try:
        _need_unique(reader.fieldnames or ())
        for number, row in enumerate(reader, 1):
            if None in row or None in row.values():
                raise _BadRow(number, f"expected the {len(reader.fieldnames or ())} columns of the first line")
            yield _row(number, row)
    except csv.Error as error:
        raise _BadRow(0, f"not CSV: {error}, at line {reader.line_num}") from None


def _parquet(path: str) -> Iterator[PromptRow]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise _BadRow(0, "reading parquet needs pyarrow: pip install 'digend[data]'") from None
    try:
        table = parquet.read_table(path)
        _need_unique(table.column_names)
        rows = table.to_pylist()
    except (OSError, ArrowException) as error:
        raise _BadRow(0, f"not parquet: {error}") from None
    for number, row in enumerate(rows, 1):
        yield _row(number, row)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError where a name is there twice: the earlier value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"{_twice([name for name, _ in pairs])!r} is there twice")
    return found


def _need_unique(columns: Sequence[str]) -> None:
    if len(set(columns)) < len(columns):
        raise _BadRow(0, f"column {_twice(columns)!r} is there twice")


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


_FORMATS: Mapping[str, Callable[[str], Iterable[PromptRow]]] = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}


def _row(number: int, row: Mapping[str, Any]) -> PromptRow:
    text = row.get(COLUMN)
    if text is None:
        near = nearest(COLUMN, list(row))
        hint = f"; did you mean to call {near!r} so?" if near else f" (there are {', '.join(row) or 'none'})"
        raise _BadRow(number, f"no column {COLUMN!r}{hint}")
    if not isinstance(text, str) or not text.strip():
        raise _BadRow(number, f"{COLUMN} = {text!r}: expected a text")
    metadata = {key: _value(each) for key, each in row.items() if key != COLUMN}
    if not all(map(_is_unicode, (text, *metadata, *metadata.values()))):
        raise _BadRow(number, "half of a surrogate pair, which is no character")
    return PromptRow(text.strip(), metadata)


def _is_unicode(text: str) -> bool:
    """JSON can write what no encoding can."""
    return _HALVES.search(text) is None


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def packed_prompts(prompts: Sequence[PromptRow]) -> bytes:
    """What is uploaded, and what its digest covers: a JSON list in UTF-8 of [text, metadata]."""
    rows = [[each.text, dict(each.metadata)] for each in prompts]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()


def unpacked_prompts(content: bytes) -> list[PromptRow]:
    """The inverse of `packed_prompts`. Raises ValueError where the bytes are anything else, or an empty list."""
    try:
        rows = json.loads(content)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(rows, list) or not rows:
        raise ValueError("expected a JSON list of prompts, with one at least")
    return [_unpacked(row) for row in rows]


def _unpacked(row: object) -> PromptRow:
    match row:
        case [str(text), dict(metadata)] if all(isinstance(each, str) for each in metadata.values()):
            if all(map(_is_unicode, (text, *metadata, *metadata.values()))):
                return PromptRow(text, metadata)
    raise ValueError(f"expected [text, metadata], found {str(row)[:40]}")


def content_digest(content: bytes) -> str:
    """Under which the driver keeps an upload: BLAKE2b with 256 bits, in hex."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()
