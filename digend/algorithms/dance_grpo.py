"""DanceGRPO: the clipped objective on a random share of all timesteps, with one initial noise a group.

Owns its defaults, those of its public recipes: noise on every timestep but the last, 60 % of them trained, drawn for
each sample; advantages divided by the standard deviation with n - 1, plus 1e-8; no KL. Best-of-N selects within a
group, after advantages were normalised on all of it. Its recipes sample with `kernel = "dance_sde"`,
`noise_level = 0.3` (0.25 for HunyuanVideo) and `sigma_schedule = "dance:3"` (`dance:5`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from digend.algorithms.grpo import ClippedPolicy, GrpoOptions, check, grpo_rules, grpo_warnings
from digend.algorithms.spec import AlgorithmSpec, Objective, SamplingRules
from digend.config.job import JobConfig
from digend.rl.advantages import CONVENTIONS


class DanceGrpoOptions(GrpoOptions):
    """`algorithm.options` of dance_grpo."""

    timestep_fraction: Annotated[
        float, Field(gt=0, le=1, description="Share of all timesteps but the last that a sample trains.")
    ] = 0.6
    timestep_order: Literal["first", "random"] = Field("random", description="Which timesteps those are.")
    shared_initial_noise: bool = Field(True, description="Whether all samples of a group start from one noise.")


def rules(options: BaseModel, config: JobConfig) -> SamplingRules:
    """What the driver draws. Raises ValueError that begins with the key of what does not fit the job."""
    assert isinstance(options, DanceGrpoOptions)
    check(options, config)
    convention = CONVENTIONS["dance"]
    return grpo_rules(options, config, ddof=convention.ddof, eps=convention.eps)


def warnings(options: BaseModel, config: JobConfig) -> Iterator[str]:
    """What is allowed and not the recipe."""
    yield from grpo_warnings(options, config)
    if config.sampling.kernel != "dance_sde":
        yield f"sampling.kernel = {config.sampling.kernel}: DanceGRPO's recipes sample with dance_sde"


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, DanceGrpoOptions)
    return ClippedPolicy(options)


spec = AlgorithmSpec(
    name="dance_grpo",
    options=DanceGrpoOptions,
    rules=rules,
    warnings=warnings,
    objective="digend.algorithms.dance_grpo:build",
)
