"""Job files and the settings of nodes from disk: validated, paths made absolute. A `ConfigError` has all problems.

Plug-in names and options need plug-ins, which are above this package: `digend.job_check`.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from digend.config.agreement import job_complaints
from digend.config.checking import validated
from digend.config.errors import Problem, nearest, require
from digend.config.job import JobConfig
from digend.config.keys import keys_of
from digend.config.layers import ETC_VARIABLE, NODE_VARIABLE, Layer, Layers, Places, gather, variable
from digend.config.node import NodeConfig
from digend.config.prompts import read_prompts as read_prompts
from digend.config.source import Source, absolute, read_source
from digend.hub import is_hub_id

PathLike = str | os.PathLike[str]

OTHER_VARIABLES = (NODE_VARIABLE, ETC_VARIABLE, "DIGEND_KEY", "DIGEND_WATCHED_GPU")
"""Variables that are no keys of a node and yet mean something."""


def load_job(path: PathLike, overrides: Sequence[str] = ()) -> JobConfig:
    """A job file, paths absolute; `overrides` are `key=value`, laid over the file. Raises ConfigError."""
    source = read_source(path, overrides)
    config, problems = check_job_table(source)
    require(problems)
    assert config is not None
    return config


def check_job_table(source: Source) -> tuple[JobConfig | None, list[Problem]]:
    """As `load_job`, for a caller that goes on to look for more problems."""
    config, problems = validated(JobConfig, source.table, source)
    if config is None:
        return None, problems
    problems = [source.problem(key, message) for key, message in job_complaints(config)]
    return with_absolute_paths(config, folder_of(source)), problems


def with_absolute_paths(config: JobConfig, folder: Path) -> JobConfig:
    """A job whose relative paths meant `folder`."""
    evaluation = config.eval
    if evaluation.prompts is not None:
        evaluation = evaluation.model_copy(update={"prompts": absolute(folder, evaluation.prompts)})
    training = config.training
    if training.init_adapter is not None:
        training = training.model_copy(update={"init_adapter": absolute(folder, training.init_adapter)})
    return config.model_copy(
        update={
            "training": training,
            "model": config.model.model_copy(update={"path": _model_path(folder, config.model.path)}),
            "data": config.data.model_copy(update={"prompts": absolute(folder, config.data.prompts)}),
            "eval": evaluation,
        }
    )


def _model_path(folder: Path, path: str) -> str:
    """A hub id stays what it is: it means the same on every box."""
    return path if is_hub_id(path) else absolute(folder, path)


def load_node(path: PathLike) -> NodeConfig:
    """A node file and nothing else, its paths absolute, those of ipc addresses too. Raises ConfigError."""
    return load_settings(Places(os.fspath(path)), {}).config


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings of a node, and the layers that say so."""

    config: NodeConfig
    layers: Layers


def load_settings(places: Places, environ: Mapping[str, str] = os.environ, more: Sequence[Layer] = ()) -> Loaded:
    """All layers of a node; `more` between files and variables. Raises ConfigError with all that is wrong."""
    from digend.config.settings import node_of

    layers, problems = gather(places, setting_keys(), environ, more=more)
    require(problems)
    config, problems = node_of(layers)
    require(problems)
    assert config is not None
    return Loaded(config, layers)


def setting_keys() -> Collection[str]:
    """The keys that a variable may name."""
    return keys_of(NodeConfig).keys()


def warnings(layers: Layers) -> list[str]:
    """What is no error and yet hardly meant: variables that are no settings."""
    near = {name: nearest(name.lower(), map(str.lower, map(variable, setting_keys()))) for name in layers.unknown}
    return [
        f"warning: {name} is no setting" + (f"; did you mean {other.upper()}?" if other else "")
        for name, other in near.items()
        if name not in OTHER_VARIABLES
    ]


def folder_of(source: Source) -> Path:
    """What relative paths of a file are relative to."""
    return Path(source.path).absolute().parent
