"""No scoring: what is generated is in UQ at once, so the generator alone decides when. Everything in closed form."""

from typing import Self

from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supply import NOTHING, OWN


class Direct:
    """`end`: when the generator's micro-batch of this global step is done; -1: it has none."""

    __slots__ = ("end", "generate", "pending", "ready", "stale")
    scorers = 1
    one_a_run = True

    def __init__(self, model: Model, snapshot: Snapshot) -> None:
        running = snapshot.generator
        self.generate = model.times.generate
        self.pending, self.ready, self.stale = snapshot.pending, snapshot.ready, snapshot.stale
        self.end = running.left if running is not None and not running.later else -1
        if self.end < 0 and self.pending:
            # After a loss: the generator takes what is pending when it is done with the next global step's.
            self.pending -= 1
            self.end = (running.left if running is not None else 0) + self.generate

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other.generate, other.pending, other.ready = self.generate, self.pending, self.ready
        other.stale, other.end = self.stale, self.end
        return other

    def advance(self, now: int, bring: int = NOTHING) -> None:
        if 0 <= self.end <= now:
            made = (now - self.end) // self.generate + 1
            if made > self.pending:
                self.ready += self.pending + 1
                self.pending, self.end = 0, -1
            else:
                self.ready += made
                self.pending -= made
                self.end += made * self.generate
        if bring == OWN:
            self.ready += 1

    def wait(self) -> int:
        at = self.end
        self.advance(at)
        return at

    def first(self, num: int) -> Self:
        other = self.copy()
        other.ready = min(self.ready, num)
        other.pending = min(self.pending, num - other.ready - 1)
        if other.pending < 0:
            other.pending, other.end = 0, -1
        return other

    def remaining(self) -> int:
        return self.ready + (self.pending + 1 if self.end >= 0 else 0)

    def finish(self, now: int, back: int, update: int) -> int:
        if self.end < 0:
            return now + back + self.ready * update if self.ready else now
        coming = self.pending + 1
        first = self.end + coming * update
        last = self.end + self.pending * self.generate + update
        start = now + back + (self.ready + coming) * update if self.ready else first + back
        return max(start, first, last)

    def phase(self, now: int) -> tuple[int, ...]:
        return (self.end - now,)

    def least(self, now: int) -> tuple[int, int, int]:
        left = self.end - now
        return left, left + self.pending * self.generate, 0

    def gap(self) -> int:
        return self.generate
