"""The TSP width that is fastest on these devices, tried before a job's first update (`timestep_width = "auto"`).

Owns which widths are tried, what of it is timed, which one is taken, and how much of a device's memory a trial may
take. Must not know tasks or losses: a trial is a pass that is handed in, and whoever hands it in leaves no trace.

Invariant: all ranks try the same widths and take the same one, because what they decide by is summed over ranks first.
Memory is known of GPUs only. No GPU has seen it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import Parameter

from digend.engines.ranks.peers import Peers

WORTH = 0.02
"""A wider pass has to be faster by this share: it takes more memory."""
ROOM = 0.9
"""Of the memory that is free to this process: kernels and the allocator want the rest."""


class Gauge(Protocol):
    """The memory of a device, in bytes."""

    def start(self) -> None:
        """Wait for the device, and forget the peak."""
        ...

    def stop(self) -> None:
        """Wait for the device."""
        ...

    def held(self) -> int: ...

    def peak(self) -> int: ...

    def limit(self) -> int | None:
        """What this process may have; None where nobody knows."""
        ...


class Unlimited:
    """Of a CPU."""

    def start(self) -> None:
        return None

    def stop(self) -> None:
        return None

    def held(self) -> int:
        return 0

    def peak(self) -> int:
        return 0

    def limit(self) -> int | None:
        return None


class CudaMemory:
    """Of torch's allocator on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def stop(self) -> None:
        torch.cuda.synchronize(self._device)

    def held(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)

    def limit(self) -> int | None:
        free, _ = torch.cuda.mem_get_info(self._device)
        return free + torch.cuda.memory_reserved(self._device)


def gauge_of(device: torch.device) -> Gauge:
    return CudaMemory(device) if device.type == "cuda" else Unlimited()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`run` makes one pass of this rank, forward and backward, of `pairs` pairs that count."""

    width: int
    pairs: int
    run: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Seconds a pair, over all ranks."""

    width: int
    seconds: float


def widths_to_try(longest: int, is_enough: Callable[[int], bool]) -> list[int]:
    """Doublings and `longest`, the timesteps of a sample, up to the first at which one pass has all pairs."""
    doubled = [1 << power for power in range(longest.bit_length())]
    widths = sorted({*doubled, longest})
    enough = next((width for width in widths if is_enough(width)), longest)
    return [width for width in widths if width <= enough]


def tried(trials: Sequence[Trial], peers: Peers, gauge: Gauge, too_wide: int | None = None) -> Iterator[Tried]:
    """Each width that fits, the narrowest first, which is not asked whether it does. `too_wide`: where memory ran out
    before.

    Raises torch.OutOfMemoryError where ranks share weights: one that ran out of memory in the middle of a pass leaves
    the others waiting. They try again without that width.
    """
    slope = 0.0
    for number, trial in enumerate(trials):
        known = too_wide is not None and trial.width >= too_wide
        if _any(peers, number > 0 and (known or _exceeds(gauge, slope * trial.pairs))):
            return
        seconds, grown, out = _timed(trial, gauge, shares=peers.shards > 1)
        if _any(peers, out):
            return
        slope = max(slope, grown / max(1, trial.pairs))
        total = peers.add_up(torch.tensor([seconds, trial.pairs], dtype=torch.float64))
        yield Tried(width=trial.width, seconds=float(total[0] / total[1].clamp(min=1)))


@contextmanager
def traceless(parameters: Sequence[Parameter], device: torch.device) -> Iterator[None]:
    """Gradients and random state are afterwards as before, whatever passes are made inside."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


def fastest(found: Sequence[Tried]) -> int:
    """The narrowest of those that are as fast as the fastest; 1 where none fitted."""
    best = min((each.seconds for each in found), default=0.0)
    return min((each.width for each in found if each.seconds <= best * (1 + WORTH)), default=1)


def _exceeds(gauge: Gauge, more: float) -> bool:
    limit = gauge.limit()
    return limit is not None and gauge.held() + more > ROOM * limit


def _any(peers: Peers, flag: bool) -> bool:
    return bool(peers.add_up(torch.tensor([int(flag)])).item())


def _timed(trial: Trial, gauge: Gauge, *, shares: bool) -> tuple[float, int, bool]:
    """Seconds of a second pass (the first pays for what happens once), bytes that it had at most beside those before,
    and whether memory ran out."""
    try:
        gauge.start()
        before = gauge.held()
        trial.run()
        gauge.stop()
        began = time.perf_counter()
        trial.run()
        gauge.stop()
        return time.perf_counter() - began, gauge.peak() - before, False
    except torch.OutOfMemoryError:
        if shares:
            raise
        torch.cuda.empty_cache()
        return 0.0, 0, True
