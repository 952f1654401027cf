"""Which dataclasses may travel, by name, and the check of each one's fields.

Starts with all of `digend.wire.messages` and `digend.wire.pulls`. The driver adds the core's events and commands, to
journal them with the same codec. A check is made the first time a type is decoded: the schema of pydantic with two
changes, scalars are never coerced (no 5 from "5") and unknown fields are errors.
"""

from dataclasses import is_dataclass
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

from digend.wire import messages, pulls

_types: dict[str, type] = {}


def register(module: ModuleType) -> None:
    """Let the dataclasses defined in `module` travel. ValueError where two modules use one name."""
    for name, cls in vars(module).items():
        if not (isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__):
            continue
        if _types.setdefault(name, cls) is not cls:
            raise ValueError(f"both {_types[name].__module__} and {module.__name__} define {name}")


def registered() -> dict[str, type]:
    """A copy of the table."""
    return dict(_types)


def named(name: str) -> type | None:
    return _types.get(name)


def is_registered(cls: type) -> bool:
    return _types.get(cls.__name__) is cls


@cache
def check_of(cls: type) -> SchemaValidator:
    """Turns decoded fields into an instance. Its `validate_python` raises pydantic's ValidationError."""
    schema: Any = TypeAdapter(cls).core_schema
    return SchemaValidator(_tightened(schema))


def _tightened(node: Any) -> Any:
    if isinstance(node, list | tuple):
        return type(node)(_tightened(item) for item in node)
    if not isinstance(node, dict):
        return node
    tight = {key: value if key in ("metadata", "default") else _tightened(value) for key, value in node.items()}
    if tight.get("type") in ("int", "float", "str", "bool", "bytes"):
        tight["strict"] = True
    if tight.get("type") == "dataclass-args":
        tight["extra_behavior"] = "forbid"
    return tight


register(messages)
register(pulls)
