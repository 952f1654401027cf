"""`digenctl plan --times FILE`: times in TOML, of a micro-batch by pool, or of a sample by worker."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from clients.amounts import LEAST_S, MOST_S
from digend.config.checking import validated
from digend.config.errors import ConfigError, require
from digend.config.section import Section
from digend.config.source import read_source


def _not_tiny(seconds: float) -> float:
    if 0 < seconds < LEAST_S:
        raise ValueError(f"expected 0, or a number from {LEAST_S:g} to {MOST_S:g}")
    return seconds


Seconds = Annotated[float, Field(ge=LEAST_S, le=MOST_S)]
SecondsOrNone = Annotated[float, Field(ge=0, le=MOST_S), AfterValidator(_not_tiny)]


class WorkerTimes(Section):
    """Seconds a sample on one worker."""

    name: Annotated[str, Field(min_length=1)] = Field(description="As `digenctl nodes` lists it.")
    role: Literal["generator", "trainer", "reward"] = Field(description="What it is configured as.")
    generate: Seconds | None = Field(None, description="Generating a sample.")
    update: Seconds | None = Field(None, description="Updating on a sample, at the job's timestep_width.")
    update_sequential: Seconds | None = Field(None, description="Updating on a sample, one timestep after another.")
    score: SecondsOrNone | None = Field(None, description="Scoring a sample.")


class TimesConfig(Section):
    """Seconds. Those at the top, but for switch and commit, are of one micro-batch as the job cuts it."""

    generate: Seconds | None = Field(None, description="g: the generator pool generates it.")
    assist: Seconds | None = Field(None, description="h: the trainer generates it.")
    update: Seconds | None = Field(None, description="t: the trainer updates on it, at the job's timestep_width.")
    update_sequential: Seconds | None = Field(None, description="t without TSP: one timestep after another.")
    score: SecondsOrNone | None = Field(None, description="s: it is scored.")
    switch: SecondsOrNone = Field(0.0, description="c: the trainer changes its mode.")
    commit: SecondsOrNone = Field(0.0, description="y: optimizer step and publishing.")
    workers: list[WorkerTimes] = Field(default_factory=list, description="Times by worker, instead of g, h, t and s.")


POOLED = ("generate", "assist", "update", "update_sequential", "score")


def read_times(path: str) -> TimesConfig:
    """Raises ConfigError."""
    source = read_source(path)
    config, problems = validated(TimesConfig, source.table, source)
    require(problems)
    assert config is not None
    both = [name for name in POOLED if getattr(config, name) is not None and config.workers]
    if both:
        raise ConfigError([source.problem(both[0], "given by worker already: workers has times of a sample")])
    return config
