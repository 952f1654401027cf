"""Dataclasses to what msgpack packs, by their type hints; one plan a class, made once.

Invariant: equal objects give equal bytes. So floats are packed as floats (a field of type float may hold the
int 60) and the keys of dictionaries are sorted.
"""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Convert = Callable[[Any], Any]


def plain(value: object) -> dict[str, object]:
    """One level of a dataclass instance, by field name; nested ones stay for msgpack to hand back here."""
    cls: type = type(value)
    names, values_of, converters = _plan(cls)
    found = dict(zip(names, values_of(value), strict=True))
    for name, convert in converters:
        found[name] = convert(found[name])
    return found


@cache
def field_table(cls: type) -> tuple[tuple[str, Convert | None], ...]:
    """(field, converter) in order; None where msgpack takes the value as it is. TypeError names the field."""
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} cannot travel: it is no dataclass")
    hints = get_type_hints(cls)
    return tuple((field.name, _converter(hints[field.name], f"{cls.__name__}.{field.name}")) for field in fields(cls))


@cache
def _plan(cls: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[tuple[str, Convert], ...]]:
    """Names, how to read all values at once, and the converters of the few that need one: this runs a dozen times a
    task."""
    table = field_table(cls)
    names = tuple(name for name, _ in table)
    return names, _reader(names), tuple((name, convert) for name, convert in table if convert is not None)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """`attrgetter` gives a tuple only where it is asked for two or more."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


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
