"""The algorithm's plug-in protocol: driver-side rules without torch, and an objective for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel

from digend.config.job import JobConfig
from digend.rl.windows import Move

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """What the driver draws for this algorithm: the fields of the core's `RolloutRules`, without the noise level."""

    window_size: int | None
    window_lo: int
    window_hi: int
    window_move: Move = "group"
    window_every: int = 1
    window_roll_back: bool = False
    ode: bool = False
    """No noise, so no window: any timestep may be trained."""
    timestep_fraction: float = 1.0
    timestep_order: str = "first"
    shared_initial_noise: bool = False
    std: str = "group"
    ddof: int = 0
    eps: float = 1e-4
    clip_max: float = 5.0
    best_of_n: int | None = None
    clip_range: float | None = None
    """Of the importance ratio; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """N (sample, timestep) pairs of one forward pass. What the algorithm does not keep (`AlgorithmSpec.keeps`) is None.

    latents [N, *L] fp32 (or fp64): where each forward pass is; with "clean", clean samples noised to the pair's sigma.
    index [N] int64; advantage [N]; level: one float, the noise level of all these pairs; sigmas: the whole list.
    next_latents [N, *L] and old_log_prob [N]: the rollout's transition, where it went and its log-prob then; old_mean
    [N, *L]: its mean. clean [N, *L]: the samples' last latents. on_policy: the samples were drawn with the present
    weights.
    """

    latents: torch.Tensor
    index: torch.Tensor
    advantage: torch.Tensor
    level: float
    kernel: str
    sigmas: Sequence[float]
    next_latents: torch.Tensor | None = None
    old_log_prob: torch.Tensor | None = None
    old_mean: torch.Tensor | None = None
    clean: torch.Tensor | None = None
    on_policy: bool = False

    def rollout_log_prob(self, like: torch.Tensor) -> torch.Tensor:
        """[N]: `old_log_prob` on the device of `like` and in its dtype. Raises ValueError where it was not kept."""
        if self.old_log_prob is None:
            raise ValueError("the rollout kept no log-probs")
        return self.old_log_prob.to(like)

    @property
    def sigma(self) -> torch.Tensor:
        """[N]: where each pair's transition begins."""
        return self.latents.new_tensor(self.sigmas)[self.index]

    @property
    def dt(self) -> torch.Tensor:
        """[N], negative: how far it goes."""
        return self.latents.new_tensor(self.sigmas)[self.index + 1] - self.sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLosses:
    """losses [N] (not reduced); log_ratio [N], clipped [N] bool and kl [N] are detached diagnostics.

    rejected [N] bool: pairs that were left out of the loss; None where none can be.
    """

    losses: torch.Tensor
    log_ratio: torch.Tensor
    clipped: torch.Tensor
    kl: torch.Tensor
    rejected: torch.Tensor | None = None


Kept = Literal["latents", "log_probs", "means", "clean"]
"""Latents around the trained timesteps; of those the log-probs and the means of the transitions; the last latents."""

Velocity = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""(latents [N, *L], sigma [N]) -> velocity [N, *L], with the pairs' conditions bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Velocities:
    """The policy's, with gradient; the frozen base's, and that of the policy that samples, both without.

    The latter two are there only where the objective needs them.
    """

    policy: Velocity
    reference: Velocity | None = None
    old: Velocity | None = None


class Objective(Protocol):
    """Turns pairs into losses. Holds no tensors."""

    @property
    def needs_reference(self) -> bool:
        """Whether `losses` takes the frozen base's velocity."""
        ...

    @property
    def needs_old(self) -> bool:
        """Whether `losses` takes the velocity of the policy that drew the samples."""
        ...

    def losses(self, velocities: Velocities, pairs: Pairs) -> PairLosses: ...


def no_warnings(options: BaseModel, config: JobConfig) -> Iterable[str]:
    """Of an algorithm that knows of nothing to warn about."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    name: str
    options: type[BaseModel]
    rules: Callable[[BaseModel, JobConfig], SamplingRules]
    """Driver side, torch-free. Raises ValueError naming the option (window outside the timesteps and the like)."""
    objective: str
    """"module:function" of `build(options: BaseModel) -> Objective`."""
    warnings: Callable[[BaseModel, JobConfig], Iterable[str]] = no_warnings
    """What is allowed and known to go wrong, a line each, beginning with the key; said at submit."""
    keeps: tuple[Kept, ...] = ("latents", "log_probs")
    """What the rollout keeps of each trained sample, beside its pixels."""
    old_decay: Callable[[BaseModel, int], float] | None = None
    """None: samples come from the newest weights. Else they come from an average of them, `Velocities.old`: called with
    the number of optimizer steps made, it gives the share of itself that the average keeps at that one."""
