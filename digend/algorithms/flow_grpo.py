"""Flow-GRPO with SDE windows: the clipped objective of GRPO on transitions of a flow-matching sampler.

Owns its options, the driver-side rules made of them (torch-free) and the objective the trainer runs. Options have the
names that Flow-GRPO's public code uses, where it has one. The clip range is tiny, 1e-4 where PPO has .2, because a
log-prob here is a mean over the 1e4 .. 1e6 dimensions of a sample: an importance ratio leaves 1 by about 1e-4, and at
.2 nothing would ever be clipped.

Sources: Flow-GRPO (objective, KL, "Fast" windows), MixGRPO and DanceGRPO (shared initial noise, random timesteps,
best-of-N).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from digend.algorithms.spec import AlgorithmSpec, Objective, PairLosses, Pairs, SamplingRules, Velocity
from digend.config.job import JobConfig
from digend.rl.windows import draw_window

if TYPE_CHECKING:
    import torch


class FlowGrpoOptions(BaseModel):
    """`algorithm.options` of flow_grpo."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    clip_range: Annotated[float, Field(gt=0, lt=1, description="Bound of |importance ratio - 1|.")] = 1e-4
    adv_clip_max: Annotated[float, Field(gt=0, description="Bound of |advantage|.")] = 5.0
    window_size: Annotated[
        int | None, Field(ge=0, description="Timesteps of a group's SDE window; missing or 0: all but the last.")
    ] = None
    window_range: Annotated[
        tuple[int, int] | None,
        Field(description="[lo, hi): where a window of window_size may lie; all timesteps but the last where missing."),
    ] = None
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
    old_log_prob: Literal["rollout"] = Field("rollout", description="Whose log-prob the ratio is to: the rollout's.")


def rules(options: BaseModel, config: JobConfig) -> SamplingRules:
    """What the driver draws. Raises ValueError that begins with the key of what does not fit the job."""
    assert isinstance(options, FlowGrpoOptions)
    lo, hi = _window_range(options, config)
    if options.best_of_n is not None and options.best_of_n > config.data.samples_per_prompt:
        raise ValueError(
            f"algorithm.options.best_of_n = {options.best_of_n} is more than the "
            f"{config.data.samples_per_prompt} samples of a group (data.samples_per_prompt)"
        )
    if config.sampling.kernel == "cps" and config.sampling.noise_level > 1:
        raise ValueError(f"sampling.noise_level = {config.sampling.noise_level} is more than 1, the most cps can add")
    return SamplingRules(
        window_size=options.window_size or None,
        window_lo=lo,
        window_hi=hi,
        timestep_fraction=options.timestep_fraction,
        timestep_order=options.timestep_order,
        shared_initial_noise=options.shared_initial_noise,
        std=options.std,
        clip_max=options.adv_clip_max,
        best_of_n=options.best_of_n,
    )


def _window_range(options: FlowGrpoOptions, config: JobConfig) -> tuple[int, int]:
    num_timesteps, kernel = config.sampling.num_timesteps, config.sampling.kernel
    if num_timesteps < 2:
        raise ValueError("sampling.num_timesteps = 1 leaves no timestep to train: the last one is never trained")
    if not options.window_size:
        if options.window_range is not None:
            lo, hi = options.window_range
            raise ValueError(
                f"algorithm.options.window_range = {[lo, hi]}: needs algorithm.options.window_size, "
                "the number of timesteps that each group trains among these"
            )
        return 0, num_timesteps - 1
    lo, hi = options.window_range or (0, num_timesteps - 1)
    key = "window_size" if options.window_range is None else "window_range"
    value = options.window_size if options.window_range is None else [lo, hi]
    try:
        draw_window(num_timesteps, options.window_size, lo, hi, kernel=kernel)
    except ValueError as error:
        raise ValueError(f"algorithm.options.{key} = {value}: {error}") from None
    return lo, hi


class FlowGrpo:
    """The clipped objective plus beta times the KL to the frozen base policy, one loss a pair."""

    def __init__(self, clip_range: float, kl_coefficient: float) -> None:
        self._clip_range = clip_range
        self._kl_coefficient = kl_coefficient

    @property
    def needs_reference(self) -> bool:
        return self._kl_coefficient > 0

    def losses(self, policy: Velocity, pairs: Pairs, reference: Velocity | None) -> PairLosses:
        """Replays each transition under the policy. The reference comes first: it runs without gradient."""
        from digend.diffusion import clipped_objective, transition

        sigma = pairs.latents.new_tensor(pairs.sigmas)[pairs.index]
        reference_velocity = None if reference is None else reference(pairs.latents, sigma)
        replay = transition(
            kernel=pairs.kernel,
            sample=pairs.latents,
            velocity=policy(pairs.latents, sigma),
            sigmas=pairs.sigmas,
            index=pairs.index,
            level=pairs.level,
            next_sample=pairs.next_latents,
        )
        if replay.log_prob is None:
            raise ValueError("a pair at noise level 0 has no log-prob and cannot be trained")
        clipped = clipped_objective(replay.log_prob, pairs.old_log_prob, pairs.advantage, self._clip_range)
        losses, kl = clipped.loss, clipped.loss.new_zeros(clipped.loss.shape)
        if reference_velocity is not None:
            kl = self._kl(pairs, replay.mean, replay.std, reference_velocity)
            losses = losses + self._kl_coefficient * kl
        return PairLosses(losses=losses, log_ratio=clipped.log_ratio, clipped=clipped.clipped, kl=kl.detach())

    def _kl(
        self, pairs: Pairs, mean: torch.Tensor, std: torch.Tensor, reference_velocity: torch.Tensor
    ) -> torch.Tensor:
        """[N]. flow_sde: Flow-GRPO's form, without dt. cps and dance_sde: the KL of the two Gaussians, averaged."""
        from digend.diffusion import kl_to_reference, transition

        base = transition(
            kernel=pairs.kernel,
            sample=pairs.latents,
            velocity=reference_velocity,
            sigmas=pairs.sigmas,
            index=pairs.index,
            level=pairs.level,
            next_sample=pairs.next_latents,
        )
        sigmas = pairs.latents.new_tensor(pairs.sigmas)
        dt = sigmas[pairs.index + 1] - sigmas[pairs.index] if pairs.kernel == "flow_sde" else None
        return kl_to_reference(mean, base.mean, std, dt)


def build(options: BaseModel) -> Objective:
    """The objective for the trainer."""
    assert isinstance(options, FlowGrpoOptions)
    return FlowGrpo(options.clip_range, options.kl_coefficient)


spec = AlgorithmSpec(
    name="flow_grpo", options=FlowGrpoOptions, rules=rules, objective="digend.algorithms.flow_grpo:build"
)
