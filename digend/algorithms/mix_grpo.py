"""MixGRPO: a short SDE window that moves over the trajectory in the course of training, the ODE everywhere else.

Owns where the window lies at a global step: moved up by one every `iters_per_group` global steps ("progressive"), or
drawn anew for each global step ("random"); all groups of a global step have the same one. A window never shrinks at the
end of its range: it stays there, or begins again (`roll_back`). Defaults are those of its public recipes: 4 of 25
timesteps, one initial noise a group, advantages with n - 1 and 1e-8, no KL.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from digend.algorithms.grpo import ClippedPolicy, GrpoOptions, check, grpo_rules, grpo_warnings, window_range
from digend.algorithms.spec import AlgorithmSpec, Objective, SamplingRules
from digend.config.job import JobConfig
from digend.rl.advantages import CONVENTIONS


class MixGrpoOptions(GrpoOptions):
    """`algorithm.options` of mix_grpo."""

    sample_strategy: Literal["progressive", "random"] = Field(
        "progressive", description="Whether the window moves on, or is drawn for each global step."
    )
    group_size: Annotated[int, Field(ge=1, description="Timesteps of the window.")] = 4
    iters_per_group: Annotated[int, Field(ge=1, description="Global steps until a progressive window moves on.")] = 25
    roll_back: bool = Field(True, description="Whether a progressive window begins again after the end of its range.")
    window_range: Annotated[
        tuple[int, int] | None,
        Field(description="[lo, hi): where the window may lie; all timesteps but the last where missing."),
    ] = None
    shared_initial_noise: bool = Field(True, description="Whether all samples of a group start from one noise.")


def rules(options: BaseModel, config: JobConfig) -> SamplingRules:
    """What the driver draws. Raises ValueError that begins with the key of what does not fit the job."""
    assert isinstance(options, MixGrpoOptions)
    convention = CONVENTIONS["dance"]
    check(options, config)
    lo, hi = window_range(options.group_size, options.window_range, config, size_key="group_size")
    return grpo_rules(
        options,
        config,
        window_size=options.group_size,
        window_lo=lo,
        window_hi=hi,
        window_move="step" if options.sample_strategy == "random" else "progressive",
        window_every=options.iters_per_group,
        window_roll_back=options.roll_back,
        ddof=convention.ddof,
        eps=convention.eps,
    )


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, MixGrpoOptions)
    return ClippedPolicy(options)


spec = AlgorithmSpec(
    name="mix_grpo",
    options=MixGrpoOptions,
    rules=rules,
    warnings=grpo_warnings,
    objective="digend.algorithms.mix_grpo:build",
)
