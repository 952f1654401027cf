"""The reward's plug-in protocol. A reward module is torch-free at import; `build()` does the heavy imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from digend.config.job import JobConfig


class NoOptions(BaseModel):
    """For rewards without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _nobody(num: int) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples to score. pixels [B, 3, H, W] (image) or [B, F, 3, H, W] (video), float32 in [0, 1], numpy on the CPU.

    A slow reward calls `scored(n)` with how many it has so far, from the thread it was called on: each sample renews
    the lease. It raises where nobody wants the scores any more; let that through.
    """

    pixels: NDArray[np.float32]
    prompts: Sequence[str]
    metadata: Sequence[Mapping[str, str]]
    scored: Callable[[int], None] = _nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One value a sample, larger is better, plus named parts for the curves (each one value a sample).

    A value of None is a sample that could not be scored; `failures[i]` says why. A part named `latency_s` is a time:
    its median and 95th percentile are curves too.
    """

    values: Sequence[float | None]
    components: Mapping[str, Sequence[float]] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)


class Reward(Protocol):
    """Called on one thread. Whatever it raises becomes a failed score with the message, never a number."""

    def score(self, batch: Batch) -> Scores: ...


def no_warnings(options: BaseModel, config: JobConfig) -> Iterable[tuple[str, str]]:
    """Most rewards have none."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec:
    name: str
    options: type[BaseModel]
    builder: str
    """"module:function" of `build(options: BaseModel, device: str) -> Reward`."""
    cuts_itself: bool = False
    """It is handed all samples of a task at once, and not `sampling.rollout_batch` at most."""
    images_only: bool = False
    """It cannot score videos, so a job that makes them must say by which frames (`frames` of the job file)."""
    warnings: Callable[[BaseModel, JobConfig], Iterable[tuple[str, str]]] = no_warnings
    """(option, or "" for the reward as a whole; what will go wrong) of valid options, told at submit."""
