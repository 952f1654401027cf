"""Settings as a person asks for them: every effective value with its origin, and every mistake of every file.

Reads nothing but what it is given or named. Invariant: no value of a secret key leaves this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from digend.config.checking import validated
from digend.config.errors import Problem
from digend.config.keys import MASK, Key, keys_of
from digend.config.layers import Environ, Layer, Layers, Places, file_names, gather
from digend.config.loader import setting_keys
from digend.config.node import NodeConfig
from digend.config.settings import node_of


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value. `value` is as TOML would have it, None where there is none; `origin` is file:line, a
    variable, a flag, or `default`."""

    key: str
    value: object
    origin: str
    secret: bool = False


def settings(config: BaseModel, layers: Layers) -> Iterator[Setting]:
    """Every key in the model's order; of a table that is not there, the table."""
    values = config.model_dump(mode="json")
    gone: tuple[str, ...] = ()
    for path, key in keys_of(type(config)).items():
        if "[]" in path or path.startswith(gone or "\0"):
            continue
        value = _at(values, path)
        if key.table and value is None:
            gone = (*gone, f"{path}.")
        elif key.table and key.type == "table":
            continue
        yield _setting(key, value, layers)


def _setting(key: Key, value: object, layers: Layers) -> Setting:
    secret = key.secret and value is not None
    origin = layers.where(key.path) if layers.says(key.path) else "default"
    return Setting(key.path, MASK if secret else value, origin, secret)


def _at(values: object, path: str) -> object:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def check_layers(places: Places, environ: Environ, more: Sequence[Layer] = ()) -> tuple[list[Problem], Layers]:
    """All that is wrong with the settings of a node: each file by itself, then what they mean together."""
    layers, problems = gather(places, setting_keys(), environ, more=more)
    for layer in layers.layers:
        problems += _alone(layer, layers.folder)
    problems += node_of(layers)[1]
    return list(dict.fromkeys(problems)), layers


def _alone(layer: Layer, folder: str) -> list[Problem]:
    """A layer's own mistakes; what it does not say, another may."""
    alone = Layers((layer,), folder)
    _, problems = validated(NodeConfig, layer.table, alone)
    return [problem for problem in problems if problem.value is not None or alone.says(problem.key)]


def names(places: Places, environ: Environ) -> list[str]:
    """The files that are read, weakest first, as the person would write them."""
    return [str(Path(name)) for name in file_names(places, environ)]
