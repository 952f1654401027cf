"""What decoded fields must be: a check for each dataclass, by its type hints, made the first time one is decoded.

pydantic-core checks; the hints are put into its words here, because `pydantic` and its models would be
half of what digenctl takes to answer. Scalars are never coerced (no 5 from "5"), unknown fields are errors, and a union
with a discriminator is told apart by that field alone. Owns the same hints that `digend.wire.plain` packs; any other is
a TypeError.
"""

import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core import core_schema as core

INT_BITS = 63
"""Of an integer, beside its sign: the journal has no room for more."""

_SCALARS: dict[Any, Callable[[], CoreSchema]] = {
    int: lambda: core.int_schema(strict=True, ge=-(2**INT_BITS), le=2**INT_BITS - 1),
    float: lambda: core.float_schema(strict=True),
    str: lambda: core.str_schema(strict=True),
    bool: lambda: core.bool_schema(strict=True),
    bytes: lambda: core.bytes_schema(strict=True),
}


@cache
def check_of(cls: type) -> SchemaValidator:
    """Turns decoded fields into an instance. Its `validate_python` raises pydantic's ValidationError."""
    return SchemaValidator(_dataclass(cls))


@cache
def _dataclass(cls: type) -> CoreSchema:
    hints = get_type_hints(cls, include_extras=True)
    post_init = hasattr(cls, "__post_init__")
    known = [core.dataclass_field(field.name, _field(field, hints[field.name])) for field in fields(cls)]
    return core.dataclass_schema(
        cls,
        core.dataclass_args_schema(cls.__name__, known, extra_behavior="forbid", collect_init_only=post_init),
        [field.name for field in fields(cls)],
        post_init=post_init,
        slots="__slots__" in vars(cls),
    )


def _field(field: "Field[Any]", hint: Any) -> CoreSchema:
    schema = _schema(hint)
    if field.default_factory is not MISSING:
        return core.with_default_schema(schema, default_factory=field.default_factory)
    return schema if field.default is MISSING else core.with_default_schema(schema, default=field.default)


def _schema(hint: Any) -> CoreSchema:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]()
    if origin is Annotated:
        return _told_apart(get_args(args[0]), args[1].discriminator)
    if origin is Literal:
        return core.literal_schema(list(args))
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin in (tuple, list):
        return _sequence(origin, args)
    if origin is dict:
        return core.dict_schema(_schema(args[0]), _schema(args[1]))
    if is_dataclass(hint):
        return _dataclass(hint)  # type: ignore[arg-type]
    raise TypeError(f"a {hint} cannot travel")


def _union(args: tuple[Any, ...]) -> CoreSchema:
    choices = [_schema(arg) for arg in args if arg is not types.NoneType]
    found = choices[0] if len(choices) == 1 else core.union_schema([*choices])
    return core.nullable_schema(found) if types.NoneType in args else found


def _sequence(origin: type, args: tuple[Any, ...]) -> CoreSchema:
    if origin is list:
        return core.list_schema(_schema(args[0]))
    if args[-1] is Ellipsis:
        return core.tuple_schema([_schema(args[0])], variadic_item_index=0)
    return core.tuple_schema([_schema(arg) for arg in args])


def _told_apart(members: tuple[type, ...], by: str) -> CoreSchema:
    """Each of the dataclasses has a `Literal` of its own in the field `by`."""
    tags = {get_args(get_type_hints(member)[by])[0]: _dataclass(member) for member in members}
    return core.tagged_union_schema(tags, by)
