"""The algorithm's plug-in protocol: driver-side rules without torch, and an objective for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel

from digend.config.job import JobConfig

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """What the driver draws for this algorithm: the fields of the core's `RolloutRules`, without the noise level."""

    window_size: int | None
    window_lo: int
    window_hi: int
    timestep_fraction: float = 1.0
    timestep_order: str = "first"
    shared_initial_noise: bool = False
    std: str = "group"
    ddof: int = 0
    eps: float = 1e-4
    clip_max: float = 5.0
    best_of_n: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """N (sample, timestep) pairs of one forward pass.

    latents, next_latents [N, *L] fp32 (or fp64); index [N] int64; old_log_prob [N]; advantage [N]; level: one float,
    the noise level of all these pairs; sigmas: the whole list.
    """

    latents: torch.Tensor
    next_latents: torch.Tensor
    index: torch.Tensor
    old_log_prob: torch.Tensor
    advantage: torch.Tensor
    level: float
    kernel: str
    sigmas: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLosses:
    """losses [N] (not reduced); log_ratio [N], clipped [N] bool and kl [N] are detached diagnostics."""

    losses: torch.Tensor
    log_ratio: torch.Tensor
    clipped: torch.Tensor
    kl: torch.Tensor


Velocity = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""(latents [N, *L], sigma [N]) -> velocity [N, *L], with the pairs' conditions bound."""


class Objective(Protocol):
    """Needs `reference` (the frozen base policy's velocity) only where `needs_reference`."""

    @property
    def needs_reference(self) -> bool: ...

    def losses(self, policy: Velocity, pairs: Pairs, reference: Velocity | None) -> PairLosses: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    name: str
    options: type[BaseModel]
    rules: Callable[[BaseModel, JobConfig], SamplingRules]
    """Driver side, torch-free. Raises ValueError naming the option (window outside the timesteps and the like)."""
    objective: str
    """"module:function" of `build(options: BaseModel) -> Objective`."""
