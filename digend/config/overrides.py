"""`--set key=value`: one value laid over a TOML table. Knows no model; validation finds unknown keys."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from digend.config.errors import ConfigError, Problem

OVERRIDE = "--set"
_KEY = re.compile(r"[A-Za-z0-9_-]+(\[\d+\])*(\.[A-Za-z0-9_-]+(\[\d+\])*)*")


def apply_overrides(table: dict[str, Any], overrides: Sequence[str]) -> tuple[str, ...]:
    """Changes `table`; returns the keys. Raises ConfigError where a key cannot be reached or is none."""
    problems: list[Problem] = []
    keys: list[str] = []
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not _KEY.fullmatch(key):
            problems.append(_problem("", f"{override!r}: expected key=value, such as training.global_steps=4"))
        elif not assign(table, _parts(key), parse_value(text)):
            problems.append(_problem(key, "no such place in the file: a number in [] must be below its length"))
        else:
            keys.append(key)
    if problems:
        raise ConfigError(problems)
    return tuple(keys)


def parse_value(text: str) -> Any:
    """A TOML value; anything that is none is a string, so that quotes are rarely needed."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if list(parsed) == ["value"] else text


def _problem(key: str, message: str) -> Problem:
    return Problem(where=OVERRIDE, key=key, message=message)


def _parts(key: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", key) if part]


def assign(table: dict[str, Any], parts: Sequence[str | int], value: object) -> bool:
    """Puts a value at a path, making the tables on the way; whether it can be reached."""
    place: Any = table
    for part in parts[:-1]:
        if isinstance(place, dict):
            place = place.setdefault(part, {})
        elif isinstance(place, list) and isinstance(part, int) and part < len(place):
            place = place[part]
        else:
            return False
    last = parts[-1]
    reachable = isinstance(place, dict) or (isinstance(place, list) and isinstance(last, int) and last < len(place))
    if reachable:
        place[last] = value
    return reachable
