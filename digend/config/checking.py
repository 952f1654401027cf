"""Validation of a table by its model, and pydantic's errors as problems that a person can mend.

Values are checked strictly (a quoted number is an error, an integer where a number is expected is not).
Knows no particular model.
"""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from digend.config.emit import toml_value
from digend.config.errors import Problem, nearest
from digend.config.keys import MASK, Key, keys_of
from digend.config.source import Blame

Model = TypeVar("Model", bound=BaseModel)
Loc = Sequence[str | int]


def validated(
    model: type[Model], table: Mapping[str, Any], source: Blame, prefix: str = ""
) -> tuple[Model | None, list[Problem]]:
    """The model of `table`, which is at `prefix` of the file; or None and all that is wrong with it."""
    if found := [*_unfit(table, ()), *_numbers_said_as_booleans(table, keys_of(model), ())]:
        return None, [source.problem(prefix + _dotted(loc), why, value=_shown(value)) for loc, value, why in found]
    try:
        return _strict(model, table), []
    except ValidationError as error:
        return None, problems_of(error, model, table, source, prefix)


def problems_of(
    error: ValidationError, model: type[BaseModel], table: Mapping[str, Any], source: Blame, prefix: str = ""
) -> list[Problem]:
    """All that is wrong with `table`, one problem a key; `error` is what its validation by `model` raised."""
    errors = error.errors(include_url=False, include_context=False)
    return _merged([_problem(model, table, source, prefix, item) for item in errors])


def _strict(model: type[Model], table: Mapping[str, Any]) -> Model:
    """By way of JSON, where strictness still takes an array for a tuple and an integer for a number."""
    return model.model_validate_json(json.dumps(table, default=_no_json), strict=True)


def _unfit(value: object, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], object, str]]:
    """Integers that neither messages nor the journal have room for, and texts that no path or name can be. Python's
    TOML and JSON take them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unfit(inner, (*loc, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _unfit(inner, (*loc, index))
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield loc, value, "expected an integer of 64 bits, as TOML has them"
    elif isinstance(value, str) and "\0" in value:
        yield loc, value, "has a NUL character, which no path and no name can have"


def _numbers_said_as_booleans(
    value: object, known: Mapping[str, Key], loc: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], object, str]]:
    """true and false where one of some numbers is expected: pydantic compares with them, and in Python true is 1."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers_said_as_booleans(inner, known, (*loc, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers_said_as_booleans(inner, known, (*loc, index))
    elif isinstance(value, bool):
        path = _dotted(loc, general=True)
        key = known.get(path) or known.get(path.removesuffix("[]"))
        if key is not None and str(int(value)) in key.choices and key.type.startswith("one of "):
            yield loc, value, f"expected {key.type} ({key.meaning.rstrip('.')})"


def _no_json(value: object) -> object:
    """A date, which no key takes: an object is the right type for none either."""
    if isinstance(value, datetime.date | datetime.time):
        return {"date": {}}
    raise TypeError(f"not TOML: {value!r}")


def _problem(
    model: type[BaseModel], table: Mapping[str, Any], source: Blame, prefix: str, item: Mapping[str, Any]
) -> Problem:
    missing = item["type"] == "missing"
    loc = item["loc"] if missing else _present(table, item["loc"])
    path, general = _dotted(loc), _dotted(loc, general=True)
    known = keys_of(model)
    value = None if missing else _shown(_at(table, loc))
    if item["type"] == "extra_forbidden":
        return source.problem(
            prefix + path, "unknown key", value=value, nearest=_nearest_key(path, general, known, prefix)
        )
    key = known.get(general) or known.get(general.removesuffix("[]"))
    words = _expected(key, item, None if missing else _at(table, loc))
    if key and key.secret and value is not None:
        value = MASK
    if missing:
        return source.problem(prefix + path, f"required, and missing: expected {words}")
    if not loc:
        return source.problem(prefix.removesuffix("."), words)  # of several keys of the table together
    near = nearest(str(_at(table, loc)), key.choices) if key and key.choices else None
    return source.problem(prefix + path, f"expected {words}", value=value, nearest=near)


def _expected(key: Key | None, item: Mapping[str, Any], value: object) -> str:
    """What the key takes and means; pydantic's own words for a plug-in's validator."""
    if item["type"] in ("value_error", "assertion_error"):
        return str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if isinstance(value, float) and not isfinite(value) and (key is None or key.type.startswith("number")):
        return f"a finite {key.type} ({key.meaning.rstrip('.')})" if key else "a finite number"
    if value == "" and item["type"] in ("string_too_short", "string_pattern_mismatch"):
        return "a string that is not empty" + (f" ({key.meaning.rstrip('.')})" if key and key.meaning else "")
    if key is None:
        return "true or false, a number, a string or a list of one of these"
    if item["type"] == "string_pattern_mismatch":
        return f"a string of the right form ({key.meaning.rstrip('.')})"
    return f"{key.type} ({key.meaning.rstrip('.')})" if key.meaning else key.type


def _nearest_key(path: str, general: str, known: Mapping[str, Key], prefix: str) -> str | None:
    """A key of the same table with a similar name, else the key of that very name in another table."""
    table, _, name = path.rpartition(".")
    general_table = general.rpartition(".")[0]
    siblings = [key.rpartition(".")[2] for key in known if key.rpartition(".")[0] == general_table]
    near = nearest(name, siblings)
    if near:
        return prefix + (f"{table}.{near}" if table else near)
    return next((prefix + key for key in known if key.rpartition(".")[2] == name), None)


def _present(table: object, loc: Loc) -> Loc:
    """The part of a location that is in the file; pydantic adds the names of a union's members."""
    place: Any = table
    for depth, part in enumerate(loc):
        inside = (isinstance(place, Mapping) and part in place) or (
            isinstance(place, list) and isinstance(part, int) and part < len(place)
        )
        if not inside:
            return loc[:depth]
        place = place[part]
    return loc


def _at(table: object, loc: Loc) -> object:
    place: Any = table
    for part in loc:
        place = place[part]
    return place


def _dotted(loc: Loc, *, general: bool = False) -> str:
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += "[]" if general else f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _shown(value: object) -> str | None:
    """The value as TOML; nothing for a table, whose keys say enough, or a null that came as JSON."""
    tables = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))
    return None if tables or value is None else toml_value(value)


def _merged(problems: Sequence[Problem]) -> list[Problem]:
    """One problem a key: a union reports each of its members."""
    return list({problem.key: problem for problem in reversed(problems)}.values())[::-1]
