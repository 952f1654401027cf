"""Flow-GRPO with SDE windows: the clipped objective of GRPO on transitions of a flow-matching sampler.

Owns what only it has: a window drawn anew for each group (its "Fast" recipes). Advantages are divided by the standard
deviation with n in the denominator, plus 1e-4. Source: Flow-GRPO (objective, KL, windows).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from digend.algorithms.grpo import ClippedPolicy, GrpoOptions, check, grpo_rules, grpo_warnings, window_range
from digend.algorithms.spec import AlgorithmSpec, Objective, SamplingRules
from digend.config.job import JobConfig


class FlowGrpoOptions(GrpoOptions):
    """`algorithm.options` of flow_grpo."""

    window_size: Annotated[
        int | None, Field(ge=0, description="Timesteps of a group's SDE window; missing or 0: all but the last.")
    ] = None
    window_range: Annotated[
        tuple[int, int] | None,
        Field(description="[lo, hi): where a window of window_size may lie; all timesteps but the last where missing."),
    ] = None


def rules(options: BaseModel, config: JobConfig) -> SamplingRules:
    """What the driver draws. Raises ValueError that begins with the key of what does not fit the job."""
    assert isinstance(options, FlowGrpoOptions)
    if not options.window_size and options.window_range is not None:
        lo, hi = options.window_range
        raise ValueError(
            f"algorithm.options.window_range = {[lo, hi]}: needs algorithm.options.window_size, "
            "the number of timesteps that each group trains among these"
        )
    check(options, config)
    if not options.window_size:
        return grpo_rules(options, config)
    lo, hi = window_range(options.window_size, options.window_range, config)
    return grpo_rules(options, config, window_size=options.window_size, window_lo=lo, window_hi=hi)


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, FlowGrpoOptions)
    return ClippedPolicy(options)


spec = AlgorithmSpec(
    name="flow_grpo",
    options=FlowGrpoOptions,
    rules=rules,
    warnings=grpo_warnings,
    objective="digend.algorithms.flow_grpo:build",
)
