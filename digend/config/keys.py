"""The keys of a model in words: what errors say is expected and what the pages list. From its JSON schema.

Knows no file and no particular model; a key inside an array of tables is `rewards[].name`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from digend.config.emit import toml_value

Schema = Mapping[str, Any]
MASK = "********"
"""What is shown of a secret."""

_BOUNDS = (("exclusiveMinimum", ">"), ("minimum", ">="), ("exclusiveMaximum", "<"), ("maximum", "<="))
_NAMES = {"integer": "integer", "number": "number", "string": "string", "boolean": "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """`default` as TOML; None where the key must be given or has no default (`required` tells which)."""

    path: str
    type: str
    meaning: str
    required: bool
    default: str | None
    choices: tuple[str, ...]
    table: bool
    """Whether it is a table (or an array of tables) with keys of its own."""
    secret: bool
    """Whether its value is never shown: a pydantic SecretStr."""


@cache
def keys_of(model: type[BaseModel]) -> dict[str, Key]:
    """All keys by path, in the model's order, tables before what is in them."""
    schema = model.model_json_schema()
    return {key.path: key for key in _keys(schema, schema.get("$defs", {}), "")}


def _keys(schema: Schema, defs: Schema, prefix: str) -> Iterator[Key]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        inner, repeated = _table_of(field, defs)
        yield _key(path, field, inner, repeated, name in required)
        if inner is not None:
            yield from _keys(inner, defs, f"{path}[]." if repeated else f"{path}.")


def _table_of(field: Schema, defs: Schema) -> tuple[Schema | None, bool]:
    """The schema of the table a field is, and whether it is an array of them."""
    for option in (field, *field.get("anyOf", ())):
        if "$ref" in option:
            return defs[option["$ref"].rpartition("/")[2]], False
        if "$ref" in option.get("items", {}):
            return defs[option["items"]["$ref"].rpartition("/")[2]], True
    return None, False


def _key(path: str, field: Schema, inner: Schema | None, repeated: bool, required: bool) -> Key:
    words = type_words(field) if inner is None else ("array of tables" if repeated else "table")
    return Key(
        path=path,
        type=words,
        meaning=field.get("description") or (inner or {}).get("description", ""),
        required=required,
        default=None if required or inner is not None else _default(field),
        choices=tuple(str(choice) for choice in _choices(_one(field)) or field.get("examples", ())),
        table=inner is not None,
        secret=bool(_one(field).get("writeOnly")),
    )


def _default(field: Schema) -> str | None:
    if "default" in field:
        return None if field["default"] is None else toml_value(field["default"])
    return {"array": "[]", "object": "{}"}.get(field.get("type", ""))


def _choices(field: Schema) -> Sequence[object]:
    """Of a value, or of each in a list; the one word that may stand in the place of a number."""
    found: Sequence[object] = field.get("enum") or field.get("items", {}).get("enum", ())
    return found or [option["const"] for option in field.get("anyOf", ()) if "const" in option]


def _one(field: Schema) -> Schema:
    """A field that may also be missing, without that."""
    options = [option for option in field.get("anyOf", ()) if option.get("type") != "null"]
    return options[0] if len(options) == 1 else field


def type_words(field: Schema) -> str:
    """`integer >= 1`, `one of gap, batch, naive`, `list of strings`."""
    field = _one(field)
    if "enum" in field or "const" in field:
        choices = [str(choice) for choice in field.get("enum", [field.get("const")])]
        return f"one of {', '.join(choices)}" if choices[1:] else choices[0]
    if field.get("type") == "array":
        return _array_words(field)
    if field.get("type") == "object":
        return "table of options"
    if "anyOf" in field:
        return " or ".join(type_words(option) for option in field["anyOf"] if option.get("type") != "null")
    return _scalar_words(field)


def _array_words(field: Schema) -> str:
    if "prefixItems" in field:
        return f"list of {len(field['prefixItems'])}, each {_scalar_words(field['prefixItems'][0])}"
    return f"list of {_scalar_words(field.get('items', {}))}s"


def _scalar_words(field: Schema) -> str:
    bounds = [f"{sign} {field[name]:g}" for name, sign in _BOUNDS if name in field]
    return " ".join([_NAMES.get(field.get("type", ""), "value"), ", ".join(bounds)]).strip()
