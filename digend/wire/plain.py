"""Dataclasses to what msgpack packs, by their type hints; one plan a class, made once.

Invariant: equal objects give equal bytes. So floats are packed as floats (a field of type float may hold the
int 60) and the keys of dictionaries are sorted.
"""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Convert = Callable[[Any], Any]


def plain(value: object) -> dict[str, object]:
    """One level of a dataclass instance, by field name; nested ones stay for msgpack to hand back here."""
    cls: type = type(value)
    return _plan(cls)(value)


@cache
def field_table(cls: type) -> tuple[tuple[str, Convert | None], ...]:
    """(field, converter) in order; None where msgpack takes the value as it is. TypeError names the field."""
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} cannot travel: it is no dataclass")
    hints = get_type_hints(cls)
    return tuple((field.name, _converter(hints[field.name], f"{cls.__name__}.{field.name}")) for field in fields(cls))


@cache
def _plan(cls: type) -> Callable[[Any], dict[str, object]]:
    """A function that reads all fields: `lambda value: {"a": value.a, "b": convert_b(value.b)}`.

    Made as text, as `dataclasses` makes `__init__`, because it runs dozens of times a task: any loop over fields takes
    twice as long. Names of fields are all that comes into the text.
    """
    table = field_table(cls)
    converters = {f"convert_{name}": convert for name, convert in table if convert is not None}
    items = (
        f"{name!r}: value.{name}" if convert is None else f"{name!r}: convert_{name}(value.{name})"
        for name, convert in table
    )
    made: Callable[[Any], dict[str, object]] = eval(f"lambda value: {{{', '.join(items)}}}", converters)
    return made


def _converter(hint: Any, where: str) -> Convert | None:
    origin, args = get_origin(hint), get_args(hint)
    if hint is float:
        return float
    if origin is Annotated:
        return _converter(args[0], where)
    if origin in (Union, types.UnionType):
        return _optional(args, where)
    if origin in (tuple, list):
        return _sequence(args, where)
    if origin is dict:
        return _mapping(args, where)
    if hint in (int, str, bool, bytes) or origin is Literal or is_dataclass(hint):
        return None
    raise TypeError(f"{where}: a {hint} cannot travel")


def _optional(args: tuple[Any, ...], where: str) -> Convert | None:
    converters = [_converter(arg, where) for arg in args if arg is not types.NoneType]
    if not any(converters):
        return None
    if len(converters) > 1:
        raise TypeError(f"{where}: a union of several types that need conversion cannot travel")
    inner = converters[0]
    return lambda value: None if value is None or inner is None else inner(value)


def _sequence(args: tuple[Any, ...], where: str) -> Convert | None:
    items = [None if arg is Ellipsis else _converter(arg, where) for arg in args]
    if not any(items):
        return None
    if len(items) == 1 or args[1] is Ellipsis:
        same = items[0]
        return lambda values: [same(value) for value in values] if same else values
    return lambda values: [value if item is None else item(value) for value, item in zip(values, items, strict=True)]


def _mapping(args: tuple[Any, ...], where: str) -> Convert:
    if args[0] is not str:
        raise TypeError(f"{where}: only text keys travel")
    inner = _converter(args[1], where)
    if inner is None:
        return lambda values: {key: values[key] for key in sorted(values)}
    return lambda values: {key: inner(values[key]) for key in sorted(values)}
