"""Everything that can be known of a job before a worker touches it: keys, plug-ins, their options, prompts.

Owns the one place where configuration meets plug-ins; used by the client before it submits and by the driver
before it accepts. Torch-free: the model folder is read by the first worker that prepares the job.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from digend import plugins
from digend.config.agreement import prompt_complaints
from digend.config.checking import validated
from digend.config.errors import ConfigError, Problem, require
from digend.config.job import JobConfig, Options
from digend.config.keys import keys_of
from digend.config.loader import check_job_table
from digend.config.prompts import read_prompts
from digend.config.source import Source, read_source
from digend.rewards.files import is_file_reward

_BLAMED = re.compile(
    r"(?P<key>[a-z_]+(\.[a-z_]+)+)( = (?P<value>\[.*?\]|[^\s:]+))?:? (?P<message>.*)", re.DOTALL
)

NOWHERE = Source(path="", text="", table={})
"""A job that came from no file: problems name the key only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """A job file and the files it names, all valid. `eval_prompts` None: the training prompts serve."""

    config: JobConfig
    prompts: tuple[str, ...]
    eval_prompts: tuple[str, ...] | None


class Spec(Protocol):
    """What the three kinds of plug-in have in common."""

    @property
    def options(self) -> type[BaseModel]: ...


def read_job(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> JobInputs:
    """Reads and checks a job file and its prompts. Raises ConfigError with every problem that was found."""
    source = read_source(path, overrides)
    config, problems = check_job_table(source)
    if config is None:
        raise ConfigError(problems)
    prompts, unreadable = _prompts(source, "data.prompts", config.data.prompts)
    eval_prompts: tuple[str, ...] = ()
    if config.eval.prompts is not None:
        eval_prompts, more = _prompts(source, "eval.prompts", config.eval.prompts)
        unreadable += more
    problems += unreadable
    problems += _plugin_problems(config, source, with_rules=not problems)
    if prompts and not problems:
        problems += _prompt_problems(config, prompts, source)
    if not Path(config.model.path).is_dir():
        problems.append(source.problem("model.path", "no such folder", value=f'"{config.model.path}"'))
    require(problems)
    return JobInputs(config=config, prompts=prompts, eval_prompts=eval_prompts or None)


def validate_job(config: JobConfig, prompts: Sequence[str]) -> None:
    """Plug-in names, their options, the algorithm's rules and the number of prompts. Raises ConfigError."""
    problems = _plugin_problems(config, NOWHERE, with_rules=True)
    require(problems + _prompt_problems(config, prompts, NOWHERE))


def _prompts(source: Source, key: str, path: str) -> tuple[tuple[str, ...], list[Problem]]:
    try:
        return tuple(read_prompts(path)), []
    except ConfigError as error:
        return (), [source.problem(key, str(problem)) for problem in error.problems]


def _prompt_problems(config: JobConfig, prompts: Sequence[str], source: Source) -> list[Problem]:
    return [source.problem(key, message) for key, message in prompt_complaints(config, len(prompts))]


def _plugin_problems(config: JobConfig, source: Source, *, with_rules: bool) -> list[Problem]:
    """`with_rules` only where the rest is sound: rules read other keys, and would complain of them again."""
    model, algorithm = config.model, config.algorithm
    _, problems = _checked(plugins.model_spec, model.family, model.options, source, "model", "family")
    for key, name, options in _scorers(config):
        if not is_file_reward(name):
            problems += _checked(plugins.reward_spec, name, options, source, key, "name")[1]
    checked, more = _checked(
        plugins.algorithm_spec, algorithm.name, algorithm.options, source, "algorithm", "name"
    )
    problems += more
    if with_rules and not problems and checked is not None:
        problems += _rules(config, checked, source)
    return problems


def _scorers(config: JobConfig) -> Iterator[tuple[str, str, Options]]:
    for index, reward in enumerate(config.rewards):
        yield f"rewards[{index}]", reward.name, reward.options
    for index, metric in enumerate(config.eval.metrics):
        yield f"eval.metrics[{index}]", metric.name, metric.options


def _checked(
    spec_of: Callable[[str], Spec], name: str, options: Options, source: Source, table: str, key: str
) -> tuple[BaseModel | None, list[Problem]]:
    """The options of one plug-in, and what is wrong with its name or with them."""
    try:
        spec = spec_of(name)
    except plugins.PluginError as error:
        return None, [source.problem(f"{table}.{key}", str(error), value=f'"{name}"')]
    return validated(spec.options, options, source, f"{table}.options.")


def _rules(config: JobConfig, options: BaseModel, source: Source) -> list[Problem]:
    """What the algorithm's rules refuse. Their messages begin with a key, often with its value."""
    try:
        plugins.algorithm_spec(config.algorithm.name).rules(options, config)
    except ValueError as error:
        found = _BLAMED.match(str(error))
        if found is None:
            return [source.problem("algorithm.options", str(error))]
        return [source.problem(found["key"], found["message"], value=found["value"])]
    return []
