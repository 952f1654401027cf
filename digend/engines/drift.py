"""How far a micro-batch's log-probs are from what the rollout saw, by sample and by timestep.

Invariant: grows by pairs, in whatever passes they come; sums are over float64 values.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from digend.wire.tasks import SampleDrift, TimestepDrift

Place = tuple[str, int, int]
"""(prompt, sample, timestep)."""


@dataclass(slots=True)
class _Sum:
    num: int = 0
    total: float = 0.0
    signed: float = 0.0
    largest: float = 0.0

    def add(self, log_ratio: float) -> None:
        self.num += 1
        self.total += abs(log_ratio)
        self.signed += log_ratio
        self.largest = max(self.largest, abs(log_ratio))


class Drift:
    """Add pairs, then read."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int], _Sum] = {}
        self._timesteps: dict[int, _Sum] = {}

    def add(self, pairs: Iterable[tuple[Place, float]]) -> None:
        """Each with its log ratio to the rollout."""
        for (prompt, index, timestep), log_ratio in pairs:
            self._samples.setdefault((prompt, index), _Sum()).add(log_ratio)
            self._timesteps.setdefault(timestep, _Sum()).add(log_ratio)

    def samples(self) -> tuple[SampleDrift, ...]:
        return tuple(
            SampleDrift(
                prompt=prompt, index=index, num_pairs=each.num, sum=each.total, max=each.largest, whole=abs(each.signed)
            )
            for (prompt, index), each in self._samples.items()
        )

    def timesteps(self) -> tuple[TimestepDrift, ...]:
        """In order."""
        return tuple(
            TimestepDrift(timestep=timestep, num_pairs=each.num, sum=each.total, max=each.largest)
            for timestep, each in sorted(self._timesteps.items())
        )
