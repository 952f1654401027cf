"""Sigma schedules as exact lists: T + 1 floats, strictly decreasing from at most 1 to exactly 0.

Every request carries its list, so that generator, trainer and report use the same values; nothing else may
recompute one. All values are float32 numbers held in Python floats. Where diffusers is the reference the
list equals the `sigmas` of FlowMatchEulerDiscreteScheduler bit for bit (compared in the tests with
diffusers 0.42 under numpy 2): the rounding to float32 is done where numpy does it, after each operation or
once at the end. `exp` comes from the C library, its result is rounded to float32. Sources: diffusers
`FlowMatchEulerDiscreteScheduler.set_timesteps`, DanceGRPO, flow_grpo.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, isfinite
from struct import pack, unpack
from typing import Final

from digend.rl.names import require_known

Sigmas = tuple[float, ...]

NUM_TRAIN_TIMESTEPS: Final = 1000
_LARGEST_SIGMA: Final = 1 + 2**-23
_LARGEST_MU: Final = 80.0  # e**mu is still a float32


def float32(value: float) -> float:
    """The nearest float32. Rounding the + - * / of two float32 so gives what float32 arithmetic gives."""
    rounded: float = unpack("<f", pack("<f", value))[0]
    return rounded


def check_decreasing(sigmas: Sequence[float]) -> Sigmas:
    """The list as a tuple. Raises ValueError unless it has 2 entries or more and falls strictly, in [0, 1].

    One float32 rounding above 1 passes: diffusers' own shift gives 1.0000001 for some shifts (1.57 is one).
    """
    if len(sigmas) < 2:
        raise ValueError(f"a sigma schedule needs at least one timestep (2 sigmas), got {list(sigmas)}")
    if not all(0 <= sigma <= _LARGEST_SIGMA for sigma in sigmas):
        raise ValueError(f"sigmas must be in [0, 1], got {list(sigmas)}")
    for at, (sigma, following) in enumerate(pairwise(sigmas)):
        if not following < sigma:
            raise ValueError(f"sigmas must decrease strictly, got {sigma} then {following} at timestep {at}")
    return tuple(sigmas)


def check(sigmas: Sequence[float]) -> Sigmas:
    """As `check_decreasing`; the last sigma must also be exactly 0, else ValueError."""
    checked = check_decreasing(sigmas)
    if checked[-1] != 0:
        raise ValueError(f"the last sigma must be 0, got {checked[-1]}")
    return checked


def _linspace(start: float, stop: float, num: int) -> list[float]:
    """numpy.linspace in float64, operation by operation."""
    if num == 1:
        return [start]
    width = (stop - start) / (num - 1)
    return [*(at * width + start for at in range(num - 1)), stop]


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {value}")


def _shift_float32(sigma: float, shift: float) -> float:
    """shift * s / (1 + (shift - 1) * s) with each operation in float32, as numpy does on a float32 array."""
    scaled = float32(float32(shift) * sigma)
    below = float32(1.0 + float32(float32(shift - 1) * sigma))
    return float32(scaled / below)


def _stretch_float32(sigmas: Sequence[float], terminal: float) -> list[float]:
    """Stretch so that the last sigma before 0 is `terminal`: diffusers' `shift_terminal`, in float32."""
    if not 0 < terminal < 1:
        raise ValueError(f"shift_terminal must be in (0, 1), got {terminal}")
    gaps = [float32(1.0 - sigma) for sigma in sigmas]
    if gaps[-1] == 0:
        raise ValueError("shift_terminal needs at least 2 timesteps")
    scale = float32(gaps[-1] / float32(1 - terminal))
    return [float32(1.0 - float32(gap / scale)) for gap in gaps]


def mu_for(
    seq_len: int,
    base_seq: int = 256,
    max_seq: int = 4096,
    base_shift: float = 0.5,
    max_shift: float = 1.15,
) -> float:
    """The mu of `flux` for a packed image of `seq_len` tokens.

    A line through (base_seq, base_shift) and (max_seq, max_shift): read these from the checkpoint's
    scheduler config. Raises ValueError when base_seq equals max_seq.
    """
    if base_seq == max_seq:
        raise ValueError(f"base_seq and max_seq must differ, got {base_seq} for both")
    slope = (max_shift - base_shift) / (max_seq - base_seq)
    return seq_len * slope + (base_shift - slope * base_seq)


def flux(num: int, mu: float, shift_terminal: float | None = None) -> Sigmas:
    """FLUX and Qwen-Image: linspace(1, 1/T, T), shifted by e**mu. Qwen-Image has shift_terminal = 0.02."""
    _positive(num=num)
    if not abs(mu) <= _LARGEST_MU:
        raise ValueError(f"mu must be a number of at most {_LARGEST_MU} in size, got {mu}")
    scale = float32(exp(mu))
    shifted = []
    for sigma in map(float32, _linspace(1.0, 1 / num, num)):
        odds = float32(float32(1.0 / sigma) - 1.0)
        shifted.append(float32(scale / float32(scale + odds)))
    if shift_terminal is not None:
        shifted = _stretch_float32(shifted, shift_terminal)
    return check([*shifted, 0.0])


def sd3_double_shift(num: int, shift: float = 3.0) -> Sigmas:
    """The grid of diffusers' `set_timesteps(T)`, and so of flow_grpo for SD3.

    The ends are shifted already, then everything is (diffusers issue 13243); parity needs it all the same.
    """
    _positive(num=num, shift=shift)
    first, last = (_shift_float32(float32(t / NUM_TRAIN_TIMESTEPS), shift) for t in (NUM_TRAIN_TIMESTEPS, 1))
    ends = first * NUM_TRAIN_TIMESTEPS, last * NUM_TRAIN_TIMESTEPS
    grid = [t / NUM_TRAIN_TIMESTEPS for t in _linspace(*ends, num)]
    return check([*(float32(shift * s / (1 + (shift - 1) * s)) for s in grid), 0.0])


def sd3_single_shift(num: int, shift: float = 3.0) -> Sigmas:
    """linspace(1, 1/T, T) shifted once: diffusers when it is passed the sigmas; UniRL, Flow-Factory."""
    _positive(num=num, shift=shift)
    grid = map(float32, _linspace(1.0, 1 / num, num))
    return check([*(_shift_float32(sigma, shift) for sigma in grid), 0.0])


def dance(num: int, shift: float = 3.0) -> Sigmas:
    """linspace(1, 0, T + 1) shifted once: DanceGRPO, and diffusers' HunyuanVideo pipeline.

    DanceGRPO's shift is 3 for FLUX, Wan and Qwen-Image, 5 for HunyuanVideo. Equal to diffusers given
    linspace(1, 0, T + 1)[:-1]; DanceGRPO's own torch.linspace may differ in the last float32 digit.
    """
    _positive(num=num, shift=shift)
    grid = map(float32, _linspace(1.0, 0.0, num + 1))
    return check([_shift_float32(sigma, shift) for sigma in grid])


def linear(num: int) -> Sigmas:
    """Equal timesteps: `sd3_single_shift` with shift 1."""
    return sd3_single_shift(num, 1.0)


def explicit(values: Sequence[float]) -> Sigmas:
    """The list of the job file, rounded to float32; it must end in 0."""
    return check([float32(value) for value in check(values)])


SCHEDULES: Final[dict[str, Callable[..., Sigmas]]] = {
    "flux": flux,
    "sd3_double_shift": sd3_double_shift,
    "sd3_single_shift": sd3_single_shift,
    "dance": dance,
    "linear": linear,
    "explicit": explicit,
}


def schedule(name: str) -> Callable[..., Sigmas]:
    """The sigma schedule of that name. Raises ValueError, naming the nearest, when SCHEDULES has none."""
    require_known("sigma schedule", name, SCHEDULES)
    return SCHEDULES[name]
