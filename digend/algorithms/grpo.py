"""What the GRPO algorithms share: options, the driver-side rules made of them, the clipped objective.

Owns nothing of any one algorithm: each is a file beside this one with its own defaults and what only it has. Torch-free
at import. The clip range is tiny, 1e-4 where PPO has .2, because a log-prob here is a mean over the 1e4 .. 1e6
dimensions of a sample: an importance ratio leaves 1 by about 1e-4, and at .2 nothing would ever be clipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from digend.algorithms.spec import PairLosses, Pairs, SamplingRules, Velocities, Velocity
from digend.config.job import JobConfig
from digend.rl.windows import draw_window

if TYPE_CHECKING:
    import torch

    from digend.diffusion import Transition

OldLogProb = Literal["current", "rollout", "recompute"]

LOOSE_CLIP_RANGE = 0.05
"""From here on nothing is ever clipped; PPO's .2 is a common mistake."""
TIGHT_CLIP_RANGE = 2.0**-23
"""Below it float32 has no ratio between 1 and the bound: whatever moves is clipped."""


class GrpoOptions(BaseModel):
    """Options of every GRPO algorithm, under the names that the public code of Flow-GRPO uses, where it has one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    clip_range: Annotated[float, Field(gt=0, lt=1, description="Bound of |importance ratio - 1|.")] = 1e-4
    adv_clip_max: Annotated[float, Field(gt=0, description="Bound of |advantage|.")] = 5.0
    timestep_fraction: Annotated[float, Field(gt=0, le=1, description="Share of the window that is trained.")] = 1.0
    timestep_order: Literal["first", "random"] = Field("first", description="Which timesteps of the window those are.")
    kl_coefficient: Annotated[float, Field(ge=0, description="beta: weight of the KL to the base model.")] = 0.0
    std: Literal["group", "global", "none"] = Field(
        "group", description="Advantages are divided by the std of their group or of the global step (a barrier)."
    )
    shared_initial_noise: bool = Field(False, description="Whether all samples of a group start from one noise.")
    best_of_n: Annotated[
        int | None, Field(ge=2, description="Samples of a group that are trained: the best and the worst.")
    ] = None
    old_log_prob: OldLogProb | None = Field(
        None,
        description="Which log-prob the ratio is to: current (the new one, without gradient), rollout (the "
        "generator's), recompute (the trainer's under the weights that drew the sample, which it keeps). Where "
        "missing, current for samples of the newest weights, where it is exact, and rollout for older ones.",
    )
    rejection_threshold: Annotated[
        float | None,
        Field(
            gt=0,
            description="A pair whose |log ratio| to the rollout is above it is left out of the loss, its KL too; it "
            "still counts in Z. None is where missing.",
        ),
    ] = None


def check(options: GrpoOptions, config: JobConfig) -> None:
    """Raises ValueError that begins with the key of what does not fit the job."""
    if config.sampling.num_timesteps < 2:
        raise ValueError("sampling.num_timesteps = 1 leaves no timestep to train: the last one is never trained")
    if options.best_of_n is not None and options.best_of_n > config.data.samples_per_prompt:
        raise ValueError(
            f"algorithm.options.best_of_n = {options.best_of_n} is more than the "
            f"{config.data.samples_per_prompt} samples of a group (data.samples_per_prompt)"
        )
    if config.sampling.kernel == "cps" and config.sampling.noise_level > 1:
        raise ValueError(f"sampling.noise_level = {config.sampling.noise_level} is more than 1, the most cps can add")


def grpo_rules(options: GrpoOptions, config: JobConfig, **own: object) -> SamplingRules:
    """The rules of the shared options, once they are checked, with an algorithm's `own` fields laid over them."""
    fields = {
        "window_size": None,
        "window_lo": 0,
        "window_hi": config.sampling.num_timesteps - 1,
        "timestep_fraction": options.timestep_fraction,
        "timestep_order": options.timestep_order,
        "shared_initial_noise": options.shared_initial_noise,
        "std": options.std,
        "clip_max": options.adv_clip_max,
        "best_of_n": options.best_of_n,
        "clip_range": options.clip_range,
    }
    return SamplingRules(**{**fields, **own})  # type: ignore[arg-type]


def window_range(
    size: int, given: tuple[int, int] | None, config: JobConfig, *, size_key: str = "window_size"
) -> tuple[int, int]:
    """[lo, hi) of a window of `size` timesteps; all but the last where none is given.

    Raises ValueError that begins with `size_key` or window_range, whichever of the two does not fit.
    """
    num_timesteps, kernel = config.sampling.num_timesteps, config.sampling.kernel
    lo, hi = given or (0, num_timesteps - 1)
    key, value = (size_key, size) if given is None else ("window_range", [lo, hi])
    try:
        draw_window(num_timesteps, size, lo, hi, kernel=kernel)
    except ValueError as error:
        raise ValueError(f"algorithm.options.{key} = {value}: {error}") from None
    return lo, hi


def grpo_warnings(options: BaseModel, config: JobConfig) -> Iterator[str]:
    """What is allowed and known to go wrong; each begins with the key to look at."""
    assert isinstance(options, GrpoOptions)
    if options.clip_range >= LOOSE_CLIP_RANGE:
        yield (
            f"algorithm.options.clip_range = {options.clip_range:g}: nothing will ever be clipped; "
            "log-probs are means over a sample's dimensions, and usual ranges are 1e-5 to 1e-3"
        )
    if options.clip_range < TIGHT_CLIP_RANGE:
        yield (
            f"algorithm.options.clip_range = {options.clip_range:g}: less than float32 can tell from 1, so every pair "
            "that moves is clipped; usual ranges are 1e-6 to 1e-3"
        )
    if config.sampling.kernel == "cps" and options.kl_coefficient > 0:
        yield (
            f"algorithm.options.kl_coefficient = {options.kl_coefficient:g}: with kernel cps the KL is that of its "
            "narrow Gaussians, which is far larger than Flow-GRPO's for flow_sde"
        )


def replayed(velocity: Velocity, pairs: Pairs) -> Transition:
    """Each pair's transition under another policy. Raises ValueError at noise level 0, where it has no log-prob."""
    from digend.diffusion import transition

    if not pairs.level:
        raise ValueError("a pair at noise level 0 has no log-prob and cannot be trained")
    return transition(
        kernel=pairs.kernel,
        sample=pairs.latents,
        velocity=velocity(pairs.latents, pairs.sigma),
        sigmas=pairs.sigmas,
        index=pairs.index,
        level=pairs.level,
        next_sample=pairs.next_latents,
    )


def reference_kl(new: Transition, base: Transition | None, pairs: Pairs) -> torch.Tensor:
    """[N], zeros without a base. flow_sde: Flow-GRPO's form, without dt; others: the KL of the two Gaussians."""
    from digend.diffusion import kl_to_reference

    if base is None:
        return new.mean.new_zeros(len(new.mean))
    return kl_to_reference(new.mean, base.mean, new.std, pairs.dt if pairs.kernel == "flow_sde" else None)


def kept(
    losses: torch.Tensor, drift: torch.Tensor, threshold: float | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(losses [N], 0 and without gradient for rejected pairs; which those are, [N]). `drift` [N]: log ratios."""
    if threshold is None:
        return losses, None
    rejected = drift.abs() > threshold
    return losses.masked_fill(rejected, 0.0), rejected


class ClippedPolicy:
    """The clipped objective plus beta times the KL to the frozen base policy, one loss a pair.

    `log_ratio` is always to the rollout's log-prob: how far the trainer is from what the generator saw.
    """

    def __init__(self, options: GrpoOptions) -> None:
        self._clip_range = options.clip_range
        self._kl_coefficient = options.kl_coefficient
        self._old_log_prob = options.old_log_prob
        self._threshold = options.rejection_threshold

    @property
    def needs_old(self) -> bool:
        return self._old_log_prob == "recompute"

    @property
    def needs_reference(self) -> bool:
        return self._kl_coefficient > 0

    def losses(self, velocities: Velocities, pairs: Pairs) -> PairLosses:
        """Replays each transition under the policy. The reference comes first: it runs without gradient."""
        from digend.diffusion import clipped_objective

        base = None if velocities.reference is None else replayed(velocities.reference, pairs)
        recomputed = None if velocities.old is None else replayed(velocities.old, pairs).log_prob
        new = replayed(velocities.policy, pairs)
        assert new.log_prob is not None
        old = recomputed if recomputed is not None else self._given(pairs, new.log_prob)
        clipped = clipped_objective(new.log_prob, old, pairs.advantage, self._clip_range)
        losses, kl = clipped.loss, reference_kl(new, base, pairs)
        if self._kl_coefficient:
            losses = losses + self._kl_coefficient * kl
        drift = new.log_prob.detach() - pairs.rollout_log_prob(new.log_prob)
        losses, rejected = kept(losses, drift, self._threshold)
        return PairLosses(losses=losses, log_ratio=drift, clipped=clipped.clipped, kl=kl.detach(), rejected=rejected)

    def _given(self, pairs: Pairs, new: torch.Tensor) -> torch.Tensor:
        """[N]: the log-prob that the ratio is to, where it needs no forward pass."""
        on_policy = pairs.on_policy if self._old_log_prob is None else self._old_log_prob == "current"
        return new.detach() if on_policy else pairs.rollout_log_prob(new)
