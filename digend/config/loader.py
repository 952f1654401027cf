"""Job and node files from disk: read, validated, paths made absolute. A `ConfigError` has all problems.

Plug-in names and options need plug-ins, which are above this package: `digend.job_check`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from digend.config.agreement import job_complaints, node_complaints
from digend.config.checking import validated
from digend.config.errors import Problem, require
from digend.config.job import JobConfig
from digend.config.node import NodeConfig
from digend.config.prompts import read_prompts as read_prompts
from digend.config.source import Source, read_source

PathLike = str | os.PathLike[str]


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
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"path": absolute(folder, config.model.path)}),
            "data": config.data.model_copy(update={"prompts": absolute(folder, config.data.prompts)}),
            "eval": evaluation,
        }
    )


def load_node(path: PathLike) -> NodeConfig:
    """A node file with its paths absolute, those of ipc addresses too. Raises ConfigError."""
    source = read_source(path)
    config, problems = validated(NodeConfig, source.table, source)
    if config is not None:
        config = _absolute_node(config, folder_of(source))
        problems = [source.problem(key, message) for key, message in node_complaints(config)]
    require(problems)
    assert config is not None
    return config


def _absolute_node(config: NodeConfig, folder: Path) -> NodeConfig:
    address = config.address
    if address.startswith("ipc://"):
        address = "ipc://" + absolute(folder, address.removeprefix("ipc://"))
    return config.model_copy(
        update={
            "address": address,
            "state": absolute(folder, config.state),
            "runs": absolute(folder, config.runs),
            "reward_paths": [absolute(folder, each) for each in config.reward_paths],
        }
    )


def folder_of(source: Source) -> Path:
    """What relative paths of a file are relative to."""
    return Path(source.path).absolute().parent


def absolute(folder: Path, path: str) -> str:
    """Without `..` and without following links: the path that the person would write."""
    return os.path.abspath(folder / Path(path).expanduser())  # noqa: PTH100
