"""DiffusionNFT: the forward process instead of the sampler's: no log-probs, and of a trajectory only its end is kept.

Owns the loss on clean samples noised anew, x_t = (1 - t) x0 + t e: a policy pushed towards good samples and away from
bad ones, v+- = v_old +- beta (v - v_old), as squared errors of the clean samples they predict, each divided by its own
mean absolute error; rho, made of the advantage, is the share of v+. Samples are drawn by the ODE from a policy of their
own, an average of the trained one, which keeps the share `old_decay` of itself at each optimizer step. Source:
DiffusionNFT.
"""

# Shapes: N pairs; "..." the dimensions of one sample.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from digend.algorithms.spec import AlgorithmSpec, Objective, PairLosses, Pairs, SamplingRules, Velocities
from digend.config.job import JobConfig

if TYPE_CHECKING:
    from torch import Tensor

Mode = Literal["all", "positive_only", "negative_only", "one_only", "binary"]


class DiffusionNftOptions(BaseModel):
    """`algorithm.options` of diffusion_nft."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    beta: Annotated[float, Field(gt=0, description="How far v+ and v- lie from the policy that samples.")] = 1.0
    kl_coefficient: Annotated[float, Field(ge=0, description="Weight of the squared distance to the base model.")] = (
        1e-4
    )
    adv_clip_max: Annotated[float, Field(gt=0, description="Bound of |advantage|; there rho is 0 or 1.")] = 5.0
    adv_mode: Mode = Field("all", description="Which advantages count: all, or their sign, or one side.")
    timestep_fraction: Annotated[
        float, Field(gt=0, le=1, description="Share of all timesteps that a sample trains, drawn at random.")
    ] = 0.99
    decay_type: Literal[0, 1, 2] = Field(
        1,
        description="Of the policy that samples: 0 is the trained one; 1 keeps min(0.001 n, 0.5) of itself at "
        "optimizer step n; 2 nothing up to 75, then min(0.0075 (n - 75), 0.999).",
    )
    std: Literal["group", "global", "none"] = Field(
        "group", description="Advantages are divided by the std of their group or of the global step (a barrier)."
    )


def rules(options: BaseModel, config: JobConfig) -> SamplingRules:
    """What the driver draws: an ODE rollout, and for each sample its share of all timesteps."""
    assert isinstance(options, DiffusionNftOptions)
    return SamplingRules(
        window_size=None,
        window_lo=0,
        window_hi=config.sampling.num_timesteps,
        ode=True,
        timestep_fraction=options.timestep_fraction,
        timestep_order="random",
        std=options.std,
        clip_max=options.adv_clip_max,
    )


def old_decay(options: BaseModel, num_steps: int) -> float:
    """The share of itself that the policy which samples keeps at optimizer step `num_steps` (from 1)."""
    assert isinstance(options, DiffusionNftOptions)
    if options.decay_type == 0:
        return 0.0
    if options.decay_type == 1:
        return min(0.001 * num_steps, 0.5)
    return min(0.0075 * max(num_steps - 75, 0), 0.999)


class DiffusionNft:
    """The loss of `losses`; holds its four numbers."""

    needs_old = True

    def __init__(self, options: DiffusionNftOptions) -> None:
        self._options = options

    @property
    def needs_reference(self) -> bool:
        return self._options.kl_coefficient > 0

    def losses(self, velocities: Velocities, pairs: Pairs) -> PairLosses:
        """adv_clip_max * (rho L+ + (1 - rho) L-) / beta + kl_coefficient * mean((v - v_base)^2), one a pair.

        `kl` is that mean. There is no importance ratio: `log_ratio` is 0 and nothing is clipped.
        """
        assert velocities.old is not None
        options, sigma = self._options, pairs.sigma
        base = None if velocities.reference is None else velocities.reference(pairs.latents, sigma)
        old = velocities.old(pairs.latents, sigma).to(pairs.latents.dtype)
        new = velocities.policy(pairs.latents, sigma).to(pairs.latents.dtype)
        change = options.beta * (new - old)
        share = (_counted(pairs.advantage, options) / options.adv_clip_max / 2 + 0.5).clamp(0, 1)
        pull = share * _error(pairs, old + change) + (1 - share) * _error(pairs, old - change)
        away = (new - base.to(new)).square().flatten(1).mean(1) if base is not None else pull.new_zeros(pull.shape)
        losses = options.adv_clip_max * pull / options.beta + options.kl_coefficient * away
        nothing = losses.detach() * 0
        return PairLosses(losses=losses, log_ratio=nothing, clipped=nothing.bool(), kl=away.detach())


def _counted(advantage: Tensor, options: DiffusionNftOptions) -> Tensor:
    """[N]: the advantages as `adv_mode` takes them."""
    most = options.adv_clip_max
    clipped = advantage.clamp(-most, most)
    return {
        "all": lambda: clipped,
        "positive_only": lambda: clipped.clamp(min=0),
        "negative_only": lambda: clipped.clamp(max=0),
        "one_only": lambda: (clipped > 0).to(clipped),
        "binary": clipped.sign,
    }[options.adv_mode]()


def _error(pairs: Pairs, velocity: Tensor) -> Tensor:
    """[N]: the squared error of the clean sample that a velocity predicts, over its mean absolute error (in double)."""
    assert pairs.clean is not None
    sigma = pairs.sigma.reshape(-1, *[1] * (velocity.ndim - 1))
    difference = (pairs.latents - sigma * velocity - pairs.clean.to(velocity)).flatten(1)
    width = difference.detach().double().abs().mean(1).clamp(min=1e-5)
    return difference.square().mean(1) / width.to(difference)


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, DiffusionNftOptions)
    return DiffusionNft(options)


spec = AlgorithmSpec(
    name="diffusion_nft",
    options=DiffusionNftOptions,
    rules=rules,
    objective="digend.algorithms.diffusion_nft:build",
    keeps=("clean",),
    old_decay=old_decay,
)
