"""What the GRPO algorithms share: options, the driver-side rules made of them, the clipped objective.

Owns nothing of any one algorithm: each is a file beside this one with its own defaults and what only it has. Torch-free
at import. The clip range is tiny, 1e-4 where PPO has .2, because a log-prob here is a mean over the 1e4 .. 1e6
dimensions of a sample: an importance ratio leaves 1 by about 1e-4, and at .2 nothing would ever be clipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from digend.algorithms.spec import PairLosses, Pairs, SamplingRules, Velocities
from digend.config.job import JobConfig
from digend.rl.windows import draw_window

if TYPE_CHECKING:
    import torch

LOOSE_CLIP_RANGE = 0.05
"""From here on nothing is ever clipped; PPO's .2 is a common mistake."""


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


def grpo_rules(options: GrpoOptions, config: JobConfig, **own: object) -> SamplingRules:
    """The rules of the shared options, with an algorithm's `own` fields laid over them.

    Raises ValueError that begins with the key of what does not fit the job.
    """
    if config.sampling.num_timesteps < 2:
        raise ValueError("sampling.num_timesteps = 1 leaves no timestep to train: the last one is never trained")
    if options.best_of_n is not None and options.best_of_n > config.data.samples_per_prompt:
        raise ValueError(
            f"algorithm.options.best_of_n = {options.best_of_n} is more than the "
            f"{config.data.samples_per_prompt} samples of a group (data.samples_per_prompt)"
        )
    if config.sampling.kernel == "cps" and config.sampling.noise_level > 1:
        raise ValueError(f"sampling.noise_level = {config.sampling.noise_level} is more than 1, the most cps can add")
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
    }
    return SamplingRules(**{**fields, **own})  # type: ignore[arg-type]


def window_range(size: int, given: tuple[int, int] | None, config: JobConfig) -> tuple[int, int]:
    """[lo, hi) of a window of `size` timesteps; all but the last where none is given. Raises ValueError as above."""
    num_timesteps, kernel = config.sampling.num_timesteps, config.sampling.kernel
    lo, hi = given or (0, num_timesteps - 1)
    key, value = ("window_size", size) if given is None else ("window_range", [lo, hi])
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
    if config.sampling.guidance_scale > 1 and config.sampling.kernel == "cps" and options.kl_coefficient > 0:
        yield (
            f"algorithm.options.kl_coefficient = {options.kl_coefficient:g}: with kernel cps the KL is that of its "
            "narrow Gaussians, which is far larger than Flow-GRPO's for flow_sde"
        )


class ClippedPolicy:
    """The clipped objective plus beta times the KL to the frozen base policy, one loss a pair."""

    def __init__(self, clip_range: float, kl_coefficient: float) -> None:
        self._clip_range = clip_range
        self._kl_coefficient = kl_coefficient

    @property
    def needs_reference(self) -> bool:
        return self._kl_coefficient > 0

    def losses(self, velocities: Velocities, pairs: Pairs) -> PairLosses:
        """Replays each transition under the policy. The reference comes first: it runs without gradient."""
        from digend.diffusion import Transition, clipped_objective, kl_to_reference, transition

        def replay(velocity: torch.Tensor) -> Transition:
            return transition(
                kernel=pairs.kernel,
                sample=pairs.latents,
                velocity=velocity,
                sigmas=pairs.sigmas,
                index=pairs.index,
                level=pairs.level,
                next_sample=pairs.next_latents,
            )

        sigma = pairs.sigma
        base = None if velocities.reference is None else replay(velocities.reference(pairs.latents, sigma))
        new = replay(velocities.policy(pairs.latents, sigma))
        if new.log_prob is None:
            raise ValueError("a pair at noise level 0 has no log-prob and cannot be trained")
        clipped = clipped_objective(new.log_prob, pairs.old_log_prob, pairs.advantage, self._clip_range)
        losses, kl = clipped.loss, clipped.loss.new_zeros(clipped.loss.shape)
        if base is not None:
            kl = kl_to_reference(new.mean, base.mean, new.std, kl_width(pairs))
            losses = losses + self._kl_coefficient * kl
        return PairLosses(losses=losses, log_ratio=clipped.log_ratio, clipped=clipped.clipped, kl=kl.detach())


def kl_width(pairs: Pairs) -> torch.Tensor | None:
    """[N]: dt, which Flow-GRPO's KL has no factor of. None, for cps and dance_sde: the KL of the two Gaussians."""
    if pairs.kernel != "flow_sde":
        return None
    sigmas = pairs.latents.new_tensor(pairs.sigmas)
    return sigmas[pairs.index + 1] - sigmas[pairs.index]
