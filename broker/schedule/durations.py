"""How long simulated tasks take: as the times say, or varied by chance that repeats.

A task is known by what it is, by its global step and by how many of its kind the step had before, not by when it runs:
so every strategy meets the same durations, and the best one in hindsight can be told.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from broker.schedule.times import Times, rational
from digend.rl.seeds import uniform_int

_PARTS = 1_000_000


class Durations(Protocol):
    @property
    def times(self) -> Times:
        """What strategies are told."""
        ...

    def ticks(self, label: str, step: int, index: int) -> int:
        """Of the index-th task `label` (generate, assist, score, update, switch, commit) of a global step."""
        ...


@dataclass(frozen=True, slots=True)
class Exact:
    times: Times

    def ticks(self, label: str, step: int, index: int) -> int:
        value: int = getattr(self.times, label)
        return value


@dataclass(frozen=True, slots=True)
class Noisy:
    """Each duration is its time multiplied by a factor of its own, uniform in [1 - spread, 1 + spread]."""

    times: Times
    spread: int
    seed: int

    @classmethod
    def around(cls, times: Times, noise: float, seed: int) -> "Noisy":
        """Raises ValueError unless 0 <= noise < 1."""
        if not 0 <= noise < 1:
            raise ValueError(f"noise = {noise}: must be at least 0 and less than 1")
        return cls(times.finer(_PARTS), int(rational(noise) * _PARTS), seed)

    def ticks(self, label: str, step: int, index: int) -> int:
        whole: int = getattr(self.times, label) // _PARTS
        return whole * (_PARTS + uniform_int(-self.spread, self.spread, "duration", self.seed, label, step, index))


def as_fraction(value: float, name: str) -> Fraction:
    """A share in [0, 1], exact. Raises ValueError, naming it, for another."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} = {value}: must be between 0 and 1")
    return rational(value)
