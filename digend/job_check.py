"""Everything that can be known of a job before a worker touches it: keys, plug-ins, their options, prompts.

Owns the one place where configuration meets plug-ins; used by the client before it submits and by the driver
before it accepts. Torch-free: the model folder is read by the first worker that prepares the job.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from digend import plugins
from digend.config.agreement import evaluation_warning, job_complaints, prompt_complaints
from digend.config.checking import validated
from digend.config.errors import ConfigError, Problem, require
from digend.config.job import JobConfig, MetricConfig, RewardConfig
from digend.config.loader import check_job_table, folder_of
from digend.config.prompts import PromptRow, read_prompts
from digend.config.source import Source, absolute, read_source, source_of
from digend.rewards.files import form_hint, is_file_reward

_BLAMED = re.compile(r"(?P<key>[a-z_]+(\.[a-z_]+)+)( = (?P<value>\[.*?\]|[^\s:]+))?:? (?P<message>.*)", re.DOTALL)
"""A key, perhaps its value, and what is wrong: the form of what an algorithm's rules raise."""

_NOWHERE = Source(path="", text="", table={})
"""A job that came from no file: problems name the key only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """A job file and the files it names, all valid. `eval_prompts` None: the training prompts serve.

    `warnings`: what algorithm, rewards and evaluation are known to go wrong by, a line each, beginning with the key.
    """

    config: JobConfig
    prompts: tuple[PromptRow, ...]
    eval_prompts: tuple[PromptRow, ...] | None
    warnings: tuple[str, ...] = ()


class Spec(Protocol):
    """What the three kinds of plug-in have in common."""

    @property
    def options(self) -> type[BaseModel]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One place of a job where a plug-in is named: `key` in `table`, its options beside it."""

    table: str
    key: str
    spec_of: Callable[[str], Spec]
    values: Mapping[str, Any]


def read_job(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> JobInputs:
    """Reads and checks a job file and its prompts. Raises ConfigError with every problem that was found.

    What stands in one place is always checked; what several keys must agree on only where all else is sound.
    """
    source = read_source(path, overrides)
    config, problems = check_job_table(source)
    prompts, unreadable = _prompts(source, "data")
    eval_prompts, more = _prompts(source, "eval")
    problems += unreadable + more + _plugin_problems(source.table, source)
    if config is not None and not problems:
        problems = _agreement_problems(config, prompts, source)
    if config is None or problems:
        raise ConfigError(_sorted(problems, source))
    return JobInputs(
        config=config,
        prompts=prompts,
        eval_prompts=eval_prompts or None,
        warnings=(
            *_algorithm_warnings(config),
            *_reward_warnings(config),
            *evaluation_warning(config, len(eval_prompts or prompts)),
        ),
    )


def read_fork(parent: str, toml: str, overrides: Sequence[str]) -> JobInputs:
    """The job file of another job, whose id is `parent`, with changes. Raises ConfigError as `read_job` does.

    Prompts are read where an override names them, and are () and None elsewhere: those are the parent's.
    """
    source = source_of(f"job file of {parent}", toml, overrides)
    config, problems = check_job_table(source)
    prompts, unreadable = _prompts(source, "data") if "data.prompts" in source.overridden else ((), [])
    eval_prompts, more = _prompts(source, "eval") if "eval.prompts" in source.overridden else ((), [])
    problems += unreadable + more + _plugin_problems(source.table, source)
    if config is not None and not problems:
        problems = _agreement_problems(config, prompts, source) if prompts else _rule_problems(config, source)
    if config is None or problems:
        raise ConfigError(_sorted(problems, source))
    return JobInputs(
        config=config, prompts=prompts, eval_prompts=eval_prompts or None, warnings=_algorithm_warnings(config)
    )


def _sorted(problems: Sequence[Problem], source: Source) -> list[Problem]:
    """In the order of the file, one a key."""
    by_key = {problem.key: problem for problem in reversed(problems)}
    return sorted(by_key.values(), key=lambda problem: source.line(problem.key) or 0)


def validate_job(config: JobConfig, prompts: Sequence[PromptRow]) -> None:
    """All but the files: plug-in names and options, and what keys must agree on. Raises ConfigError."""
    require([_NOWHERE.problem(key, message) for key, message in job_complaints(config)])
    require(_plugin_problems(config.model_dump(mode="json"), _NOWHERE))
    require(_agreement_problems(config, prompts, _NOWHERE))


def _prompts(source: Source, table: str) -> tuple[tuple[PromptRow, ...], list[Problem]]:
    """The prompts that a table names; nothing where it names none, which validation reports if it matters."""
    section = source.table.get(table)
    path = section.get("prompts") if isinstance(section, dict) else None
    if not isinstance(path, str) or not path:
        return (), []
    try:
        return tuple(read_prompts(absolute(folder_of(source), path))), []
    except ConfigError as error:
        return (), [source.problem(f"{table}.prompts", str(problem)) for problem in error.problems]


def _plugin_problems(table: Mapping[str, Any], source: Source) -> list[Problem]:
    return [problem for use in _uses(table) for problem in _use_problems(use, source)]


def _uses(table: Mapping[str, Any]) -> Iterator[_Use]:
    """The plug-ins that a table names, as far as it has the form of a job."""
    evaluation = table.get("eval")
    metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    yield from _one_use("model", "family", plugins.model_spec, table.get("model"))
    yield from _one_use("algorithm", "name", plugins.algorithm_spec, table.get("algorithm"))
    for name, scorers in (("rewards", table.get("rewards")), ("eval.metrics", metrics)):
        for index, scorer in enumerate(scorers if isinstance(scorers, list) else ()):
            yield from _one_use(f"{name}[{index}]", "name", plugins.reward_spec, scorer)


def _one_use(table: str, key: str, spec_of: Callable[[str], Spec], values: object) -> Iterator[_Use]:
    if isinstance(values, dict) and isinstance(values.get(key), str) and not is_file_reward(values[key]):
        yield _Use(table=table, key=key, spec_of=spec_of, values=values)


def _use_problems(use: _Use, source: Source) -> list[Problem]:
    """What is wrong with a plug-in's name, or with its options."""
    name, options = use.values[use.key], use.values.get("options", {})
    try:
        spec = use.spec_of(name)
    except plugins.PluginError as error:
        hint = form_hint(name) if use.spec_of is plugins.reward_spec else ""
        return [source.problem(f"{use.table}.{use.key}", str(error) + hint)]
    if not isinstance(options, dict):
        return []
    return validated(spec.options, options, source, f"{use.table}.options.")[1]


def _agreement_problems(config: JobConfig, prompts: Sequence[PromptRow], source: Source) -> list[Problem]:
    problems = [source.problem(key, message) for key, message in prompt_complaints(config, len(prompts))]
    return (
        problems + _rule_problems(config, source) + [*_video_problems(config, source), *_lora_problems(config, source)]
    )


def _lora_problems(config: JobConfig, source: Source) -> Iterator[Problem]:
    """An adapter on a family that names no modules for one."""
    training, family = config.training, plugins.model_spec(config.model.family)
    if training.trainable == "lora" and not training.lora_targets and not family.lora_targets:
        expected = f'family {family.name} names no LoRA targets: expected training.lora_targets, or trainable = "full"'
        yield source.problem("training.trainable", expected)


def _video_problems(config: JobConfig, source: Source) -> Iterator[Problem]:
    """Rewards of images in a job that makes videos."""
    listed: list[tuple[str, Sequence[RewardConfig | MetricConfig]]] = [
        ("rewards", config.rewards),
        ("eval.metrics", config.eval.metrics),
    ]
    for table, sections in listed if config.sampling.num_frames > 1 else ():
        for at, each in enumerate(sections):
            if each.frames == "whole" and not is_file_reward(each.name) and plugins.reward_spec(each.name).images_only:
                expected = f'{each.name} scores images: expected by which frames, such as frames = "mean"'
                yield source.problem(f"{table}[{at}].frames", expected)


def _algorithm_warnings(config: JobConfig) -> tuple[str, ...]:
    spec = plugins.algorithm_spec(config.algorithm.name)
    return tuple(spec.warnings(spec.options.model_validate(config.algorithm.options), config))


def _reward_warnings(config: JobConfig) -> Iterator[str]:
    for where, scorer in scorers(config):
        if is_file_reward(scorer.name):
            continue
        spec = plugins.reward_spec(scorer.name)
        for option, message in spec.warnings(spec.options.model_validate(scorer.options), config):
            yield f"{where}.options.{option}: {message}" if option else f"{where} ({scorer.name}): {message}"


def scorers(config: JobConfig) -> Iterator[tuple[str, RewardConfig | MetricConfig]]:
    """Everything that scores, with the path of its table."""
    yield from ((f"rewards[{at}]", each) for at, each in enumerate(config.rewards))
    yield from ((f"eval.metrics[{at}]", each) for at, each in enumerate(config.eval.metrics))


def _rule_problems(config: JobConfig, source: Source) -> list[Problem]:
    """What the algorithm's rules refuse. The options are valid already."""
    spec = plugins.algorithm_spec(config.algorithm.name)
    options, problems = validated(spec.options, config.algorithm.options, source, "algorithm.options.")
    if options is None:
        return problems
    try:
        spec.rules(options, config)
    except ValueError as error:
        found = _BLAMED.match(str(error))
        if found is None:
            return [source.problem("algorithm.options", str(error))]
        return [source.problem(found["key"], found["message"], value=found["value"])]
    return []
