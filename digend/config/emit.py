"""Configuration back to TOML text. The text loads to an equal configuration (tested)."""

from typing import Any

import tomli_w
from pydantic import BaseModel


def resolved_toml(config: BaseModel) -> str:
    """Every key with its value, defaults too. A key without one (None) is left out, as TOML has no null."""
    return tomli_w.dumps(_without_none(config.model_dump(mode="json")))


def toml_value(value: object) -> str:
    """One value as TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(inner) for inner in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value
