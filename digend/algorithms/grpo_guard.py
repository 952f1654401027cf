"""GRPO-Guard: Flow-GRPO with importance ratios that are centred and of one width at every timestep.

Owns the ratio exp((log p - log p_old + b) * sd): the bias b is the mean over a sample's dimensions of
(mean - mean_old)^2 / (2 sd^2), and sd = g * sqrt(-dt) the noise's total standard deviation; the loss is divided by -dt.
b is of each pair: the public code's mean over the whole batch would mix samples. Needs the means of the rollout's
transitions, one latent a trained timestep. Source: GRPO-Guard.
"""

# Shapes: N pairs; "..." the dimensions of one sample.

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from digend.algorithms.flow_grpo import FlowGrpoOptions, rules
from digend.algorithms.grpo import grpo_warnings, kept, reference_kl, replayed
from digend.algorithms.spec import AlgorithmSpec, Objective, PairLosses, Pairs, Velocities


class GrpoGuardOptions(FlowGrpoOptions):
    """`algorithm.options` of grpo_guard."""

    clip_range: Annotated[float, Field(gt=0, lt=1, description="Bound of |importance ratio - 1|.")] = 2e-6
    old_log_prob: Literal["rollout"] | None = Field(
        None, description="Always the rollout's: its means are what the ratio is centred with."
    )


class GrpoGuard:
    """The guarded objective plus beta times the KL to the frozen base policy."""

    needs_old = False

    def __init__(self, clip_range: float, kl_coefficient: float, rejection_threshold: float | None = None) -> None:
        self._clip_range = clip_range
        self._kl_coefficient = kl_coefficient
        self._threshold = rejection_threshold

    @property
    def needs_reference(self) -> bool:
        return self._kl_coefficient > 0

    def losses(self, velocities: Velocities, pairs: Pairs) -> PairLosses:
        """One a pair; `clipped` is about the guarded ratio, `log_ratio` is the plain one."""
        from digend.diffusion import clipped_objective

        base = None if velocities.reference is None else replayed(velocities.reference, pairs)
        new = replayed(velocities.policy, pairs)
        assert new.log_prob is not None
        assert pairs.old_mean is not None
        sd = new.std.reshape(-1)
        moved = (new.mean - pairs.old_mean.to(new.mean)).square().flatten(1).mean(1)
        log_ratio = new.log_prob - pairs.rollout_log_prob(new.log_prob)
        guarded = (log_ratio + moved / (2 * sd.square())) * sd
        clipped = clipped_objective(guarded, guarded.new_zeros(guarded.shape), pairs.advantage, self._clip_range)
        losses = clipped.loss / -pairs.dt
        kl = reference_kl(new, base, pairs)
        losses, rejected = kept(losses + self._kl_coefficient * kl, log_ratio.detach(), self._threshold)
        return PairLosses(
            losses=losses,
            log_ratio=log_ratio.detach(),
            clipped=clipped.clipped,
            kl=kl.detach(),
            rejected=rejected,
        )


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, GrpoGuardOptions)
    return GrpoGuard(options.clip_range, options.kl_coefficient, options.rejection_threshold)


spec = AlgorithmSpec(
    name="grpo_guard",
    options=GrpoGuardOptions,
    rules=rules,
    warnings=grpo_warnings,
    objective="digend.algorithms.grpo_guard:build",
    keeps=("latents", "log_probs", "means"),
)
