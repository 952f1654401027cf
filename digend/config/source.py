"""TOML text, and at which line each of its keys is. Knows no model.

Overrides (`--set key=value`) are laid over the table before anything is validated: they obey the same rules.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from digend.config.errors import ConfigError, Problem, nearest
from digend.config.overrides import OVERRIDE, apply_overrides

MAX_LINES = 2000
"""Longer files are reported without line numbers: finding them costs a parse a line."""

MAX_DEPTH = 64
"""Of tables and arrays within each other."""

Table = dict[str, Any]


class Blame(Protocol):
    """What knows where each key comes from: a file, or layers of them."""

    def problem(self, key: str, message: str, *, value: str | None = None, nearest: str | None = None) -> Problem: ...


@dataclass(frozen=True)
class Source:
    """One file as read. `table` has the overrides in it; `overridden` are their keys."""

    path: str
    text: str
    table: Table
    overridden: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> dict[str, int]:
        return key_lines(self.text)

    def where(self, key: str) -> str:
        """file:line of a key, or of the nearest table above it; `--set` where the key was overridden."""
        if any(key == name or key.startswith((f"{name}.", f"{name}[")) for name in self.overridden):
            return OVERRIDE
        line = self.line(key)
        return f"{self.path}:{line}" if line else self.path

    def line(self, key: str) -> int | None:
        """The line of a key, or of the nearest table above it."""
        while key and key not in self.lines:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self.lines.get(key)

    def problem(self, key: str, message: str, *, value: str | None = None, nearest: str | None = None) -> Problem:
        return Problem(where=self.where(key), key=key, message=message, value=value, nearest=nearest)


def read_source(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Source:
    """Reads and parses a file. ConfigError: no file, a directory, not UTF-8, not TOML, a bad override."""
    name = os.fspath(path)
    return source_of(name, read_text(name), overrides)


def source_of(name: str, text: str, overrides: Sequence[str] = ()) -> Source:
    """The same of a text that is at hand; `name` is what problems call it."""
    table = _parse(name, text)
    return Source(name, text, table, apply_overrides(table, overrides))


def read_text(path: str) -> str:
    """A whole file as text. Raises ConfigError that names the byte where it is not UTF-8."""
    try:
        if not stat.S_ISREG(mode := Path(path).stat().st_mode) and not stat.S_ISDIR(mode):
            raise _whole(path, "is no regular file")  # a pipe would be waited for until somebody writes to it
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise _whole(path, f"not UTF-8: byte 0x{byte:02x} at offset {error.start}") from None
    except FileNotFoundError:
        near = neighbour(path)
        raise ConfigError([Problem(where=path, key="", message="no such file", nearest=near)]) from None
    except IsADirectoryError:
        raise _whole(path, "is a directory, expected a file") from None
    except OSError as error:
        raise _whole(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _whole(path, f"cannot be read: {error}") from None


def neighbour(path: str) -> str | None:
    """The name in a file's folder that looks most like its own, if any does."""
    here = Path(path)
    try:
        return nearest(here.name, [each.name for each in here.parent.iterdir()])
    except OSError:
        return None


def absolute(folder: str | os.PathLike[str], path: str) -> str:
    """Without `..` and without following links: the path as the person would write it. Nobody's home stays `~name`."""
    return os.path.abspath(Path(folder, os.path.expanduser(path)))  # noqa: PTH100, PTH111


def _whole(path: str, message: str) -> ConfigError:
    return ConfigError([Problem(where=path, key="", message=message)])


def _parse(path: str, text: str) -> Table:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _syntax_error(str(error), text)
        raise _whole(f"{path}:{line}", f"not TOML: {message}") from None
    except RecursionError:
        raise _whole(path, "not TOML: arrays or tables nested too deep") from None
    except ValueError as error:
        raise _whole(path, f"not TOML: {error}") from None
    if _depth_over(table, MAX_DEPTH):
        raise _whole(path, f"tables or arrays nested deeper than {MAX_DEPTH}")
    return table


def _depth_over(table: Table, limit: int) -> bool:
    """Level by level: a dotted key of thousands of parts is valid TOML, and too deep for whoever calls itself."""
    level: list[object] = [table]
    for _ in range(limit):
        inner = [each for value in level if isinstance(value, dict) for each in value.values()]
        level = inner + [each for value in level if isinstance(value, list) for each in value]
    return bool(level)


def _syntax_error(message: str, text: str) -> tuple[str, int]:
    """tomllib's message without its position, and the line."""
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if found:
        return f"{message[: found.start()]} (column {found.group(2)})", int(found.group(1))
    return message.removesuffix(" (at end of document)") + " at the end of the file", text.count("\n") + 1


def key_lines(text: str) -> dict[str, int]:
    """Line, from 1, of every key and table: `training.learning_rate`, `rewards[0].name`.

    A prefix of whole lines is TOML exactly where no value is still open, so the keys that a longer prefix
    adds begin right after the prefix before it. That leaves all of TOML's syntax to the parser.
    """
    lines = text.splitlines(keepends=True)
    found: dict[str, int] = {}
    begin = 1
    for number in range(1, len(lines) + 1 if len(lines) <= MAX_LINES else 1):
        try:
            table = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        for key in _paths(table, ""):
            found.setdefault(key, begin)
        begin = number + 1
    return found


def _paths(value: object, prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{prefix}[{index}]")
