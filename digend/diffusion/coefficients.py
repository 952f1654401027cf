"""What a kernel does to one sample in one timestep, as three numbers. No tensors, no torch.

Every kernel is a Gaussian whose mean is linear in the sample x and the velocity v. Its coefficients are
computed on the host in float64 and rounded once where they are used, so they are the same on every device.

Convention: x_s = (1 - s) * clean + s * noise, v ~ noise - clean, s = sigmas[i], s' = sigmas[i + 1] < s,
dt = s' - s.

- flow_sde (Flow-GRPO): the reverse SDE with g = level * sqrt(s / (1 - d)); noise sd g * sqrt(-dt).
- dance_sde (DanceGRPO): the reverse SDE with g = level, noise sd g * sqrt(-dt).
- cps (coefficients-preserving, Flow-GRPO): the predicted clean and noise parts mixed for s', with a part of
  the noise made new; noise sd s' * sin(level * pi / 2), 0 in the last timestep.
- ode: x + dt * v, which is also what every kernel does at level 0.

d is s, but the second sigma where s is within 1e-3 of 1 and 1 - s means nothing. That is a test of
closeness, not of equality: a schedule may start at .9996 or .999999. It never raises d above the second
sigma, so it can act only on the first timestep.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

_NEAR_ONE: Final = 1 - 1e-3


class Coefficients(NamedTuple):
    """mean = of_sample * x + of_velocity * v, noise sd = std; one timestep of one sample."""

    of_sample: float
    of_velocity: float
    std: float


def _reverse_sde(s: float, s_next: float, g: float) -> Coefficients:
    dt = s_next - s
    drift = g * g / (2 * s)
    return Coefficients(1 + drift * dt, (1 + drift * (1 - s)) * dt, g * math.sqrt(-dt))


def _flow_sde(s: float, s_next: float, second: float, level: float) -> Coefficients:
    d = min(s, second) if s > _NEAR_ONE else s
    return _reverse_sde(s, s_next, level * math.sqrt(s / (1 - d)))


def _dance_sde(s: float, s_next: float, second: float, level: float) -> Coefficients:
    return _reverse_sde(s, s_next, level)


def _cps(s: float, s_next: float, second: float, level: float) -> Coefficients:
    if level > 1:
        raise ValueError(f"level of kernel 'cps' must be at most 1 (a quarter turn), got {level}")
    clean, noise = 1 - s_next, s_next * math.cos(level * math.pi / 2)
    return Coefficients(clean + noise, noise * (1 - s) - clean * s, s_next * math.sin(level * math.pi / 2))


_STOCHASTIC: Final[dict[str, Callable[[float, float, float, float], Coefficients]]] = {
    "flow_sde": _flow_sde,
    "cps": _cps,
    "dance_sde": _dance_sde,
}


def coefficients(kernel: str, sigmas: Sequence[float], index: int, level: float) -> Coefficients:
    """The timestep `index` of the whole list `sigmas`; the ODE's for any kernel at level 0.

    Raises ValueError for a level of cps above 1 (a quarter turn of its noise), KeyError for an unknown
    kernel.
    """
    s, s_next = sigmas[index], sigmas[index + 1]
    if kernel == "ode" or level == 0:
        return Coefficients(1.0, s_next - s, 0.0)
    return _STOCHASTIC[kernel](s, s_next, sigmas[1], level)
