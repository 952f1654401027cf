"""Which timesteps of a trajectory are stochastic (the SDE window) and which of those are trained (S_i).

A window is drawn once per *group*, by the driver, before the rollout, and shipped in every request: members
of a group that explore different timesteps have rewards that cannot be compared. Timestep i goes from
sigmas[i] to sigmas[i + 1]; of T timesteps the last, T - 1, ends at sigma 0.

Invariant: a window is never empty, never shorter than asked for, and inside the range it was drawn from. A
progressive window stops at the end of its range instead of shrinking there (MixGRPO's does shrink, down to
nothing).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from digend.rl.names import KERNELS, require_known
from digend.rl.seeds import Key, choice_without_replacement, uniform_int

Move = Literal["group", "step", "progressive"]
"""A window is drawn for each group, or for each global step, or moves on with the global step."""
Order = Literal["first", "random"]
ORDERS: Final[tuple[Order, ...]] = ("first", "random")

_LAST_IS_UNTRAINABLE: Final = {
    "flow_sde": "its transition density is extremely sharp there",
    "cps": "it adds no noise there",
}


@dataclass(frozen=True, slots=True)
class Window:
    """Stochastic timesteps start .. stop - 1 (half-open, like `range`)."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def indexes(self) -> tuple[int, ...]:
        return tuple(range(self.start, self.stop))


def check_window(num_timesteps: int, window: Window, kernel: str) -> None:
    """Raise ValueError for a window that is empty, leaves the timesteps, or that `kernel` cannot train."""
    require_known("kernel", kernel, KERNELS)
    start, stop = window.start, window.stop
    if kernel == "ode":
        raise ValueError("kernel 'ode' is deterministic and has no log-prob, so it has no window to train")
    if not 0 <= start < stop <= num_timesteps:
        raise ValueError(f"window [{start}, {stop}) is empty or outside the {num_timesteps} timesteps")
    if stop == num_timesteps and kernel in _LAST_IS_UNTRAINABLE:
        why = _LAST_IS_UNTRAINABLE[kernel]
        raise ValueError(
            f"window [{start}, {stop}) holds the last timestep {stop - 1}, which {kernel} cannot train: {why}"
        )


def _last_start(num_timesteps: int, size: int, lo: int, hi: int, kernel: str) -> int:
    """The last start in [lo, hi - size], once every window of the range is known to be valid."""
    if size < 1 or lo < 0 or hi - lo < size:
        raise ValueError(f"a window of size {size} does not fit in the range [{lo}, {hi})")
    check_window(num_timesteps, Window(lo, hi), kernel)
    return hi - size


def whole_window(num_timesteps: int) -> Window:
    """All timesteps but the last. Raises ValueError when there are fewer than two."""
    if num_timesteps < 2:
        raise ValueError(f"num_timesteps must be at least 2 to leave one to train, got {num_timesteps}")
    return Window(0, num_timesteps - 1)


def draw_window(num_timesteps: int, size: int | None, lo: int, hi: int, *key: Key, kernel: str = "flow_sde") -> Window:
    """The window of one group, as flow_grpo's "Fast" recipes draw it: the start is uniform in [lo, hi -
    size].

    Both ends are included. size 0 or None is the whole trajectory but its last timestep; lo and hi are then
    not looked at. Raises ValueError when a window of the range would not fit in it, leave the timesteps, or
    hold a timestep that `kernel` cannot train.
    """
    if not size:
        window = whole_window(num_timesteps)
        check_window(num_timesteps, window, kernel)
        return window
    start = uniform_int(lo, _last_start(num_timesteps, size, lo, hi, kernel), "window", *key)
    return Window(start, start + size)


def progressive_window(
    num_timesteps: int,
    size: int,
    lo: int,
    hi: int,
    global_step: int,
    every: int,
    *,
    roll_back: bool = False,
    kernel: str = "flow_sde",
) -> Window:
    """MixGRPO's progressive window: its start moves up from lo by one each `every` global steps.

    Once at hi - size it stays there, or begins again at lo (`roll_back`). Raises ValueError as `draw_window` does,
    and for global_step < 0 or every < 1.
    """
    if global_step < 0 or every < 1:
        raise ValueError(f"need global_step >= 0 and every >= 1, got {global_step=}, {every=}")
    last = _last_start(num_timesteps, size, lo, hi, kernel)
    moves = global_step // every
    start = lo + moves % (last - lo + 1) if roll_back else min(lo + moves, last)
    return Window(start, start + size)


def levels(num_timesteps: int, window: Window, noise_level: float) -> tuple[float, ...]:
    """The noise level of each of the T timesteps: `noise_level` inside the window, 0 (the ODE) elsewhere.

    Raises ValueError when the window leaves the timesteps or the level is negative or not finite.
    """
    if not 0 <= window.start <= window.stop <= num_timesteps:
        raise ValueError(f"window [{window.start}, {window.stop}) is outside the {num_timesteps} timesteps")
    if not (isfinite(noise_level) and noise_level >= 0):
        raise ValueError(f"noise_level must be a finite number >= 0, got {noise_level}")
    return tuple(noise_level if window.start <= i < window.stop else 0.0 for i in range(num_timesteps))


def select_timesteps(indexes: Sequence[int], fraction: float, order: Order = "first", *key: Key) -> tuple[int, ...]:
    """S_i: the timesteps of a window that one sample trains on, ascending.

    int(n * fraction) of the n, but at least one. "first" takes them in order (flow_grpo), "random" a subset
    drawn by `key` (DanceGRPO: put the sample in the key). The fraction is one of the *window*, which leaves
    out the last timestep already: flow_grpo's .99 of 10 is 1.0 here. Raises ValueError for no indexes, a
    fraction outside (0, 1], or an unknown order.
    """
    require_known("timestep order", order, ORDERS)
    if not indexes:
        raise ValueError("no timesteps to select from")
    if not 0 < fraction <= 1:
        raise ValueError(f"timestep fraction must be in (0, 1], got {fraction}")
    num = max(1, int(len(indexes) * fraction))
    if order == "first":
        return tuple(sorted(indexes[:num]))
    chosen = choice_without_replacement(len(indexes), num, "timesteps", *key)
    return tuple(sorted(indexes[at] for at in chosen))
