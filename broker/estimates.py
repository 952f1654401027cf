"""How fast each worker is, from task receipts. Robust: a median of recent tasks, and the first never counts alone.

Only ratios matter to GAP, so an unknown worker counts as an average one.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

_RECENT = 8


@dataclass(slots=True)
class Estimate:
    """Nanoseconds a unit (a sample, a micro-batch) of the last tasks of one kind on one worker."""

    num_seen: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    doubtful: bool = False

    def add(self, total_ns: int, num_units: int) -> None:
        if num_units < 1 or total_ns <= 0:
            return
        if self.num_seen == 1 or self.doubtful:
            # The first task of a kind pays for compilation and caches: once there is a second, forget it.
            self.recent.clear()
        self.doubtful = False
        self.num_seen += 1
        self.recent.append(total_ns / num_units)

    def rescale(self, factor: float) -> None:
        """The worker became slower by `factor` since; a guess, for not all work follows the clock."""
        for index, each in enumerate(self.recent):
            self.recent[index] = each * factor

    def invalidate(self) -> None:
        """Until the next task what is known is still the best guess; then it is forgotten."""
        self.doubtful = True

    @property
    def ns(self) -> float | None:
        return median(self.recent) if self.recent else None

    @property
    def fast_ns(self) -> float:
        """The lower quartile: three of four take as long or longer."""
        return sorted(self.recent)[len(self.recent) // 4] if self.recent else 0.0


def speeds(estimates: dict[str, Estimate]) -> dict[str, float]:
    """Relative speeds by worker, summing to 1; a worker without an estimate gets the mean of the others."""
    known = {name: 1.0 / estimate.ns for name, estimate in estimates.items() if estimate.ns}
    usual = sum(known.values()) / len(known) if known else 1.0
    raw = {name: known.get(name, usual) for name in estimates}
    total = sum(raw.values())
    return {name: speed / total for name, speed in raw.items()}
