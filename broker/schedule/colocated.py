"""The generator scores too: after each task SQ first, else the next micro-batch.

SQ holds items of the open global step before those of the next one, and a task that has begun is not interrupted.
"""

from typing import Self

from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supply import LATER, NOTHING, OWN

_IDLE, _GENERATES, _SCORES, _GENERATES_LATER, _SCORES_LATER = range(5)


class Colocated:
    """`end`: when the generator's task, of kind `task`, is done."""

    __slots__ = ("end", "generate", "later", "pending", "queued", "ready", "score", "stale", "task")
    scorers = 1
    one_a_run = False

    def __init__(self, model: Model, snapshot: Snapshot) -> None:
        self.generate, self.score = model.times.generate, model.times.score
        self.pending, self.ready, self.stale = snapshot.pending, snapshot.ready, snapshot.stale
        self.queued, self.later = snapshot.queued, snapshot.later
        self.task, self.end = _IDLE, 0
        running = snapshot.generator
        if running is not None:
            self.task = 1 + running.scoring + 2 * running.later
            self.end = running.left

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other.generate, other.score, other.pending, other.ready = self.generate, self.score, self.pending, self.ready
        other.stale, other.queued, other.later = self.stale, self.queued, self.later
        other.task, other.end = self.task, self.end
        return other

    def advance(self, now: int, bring: int = NOTHING) -> None:
        while self.task and self.end < now:
            self._done()
            self._dispatch(self.end)
        if self.task and self.end == now:
            self._done()
        if bring == OWN:
            self.queued += 1
        elif bring == LATER:
            self.later += 1
        if not self.task:
            self._dispatch(now)

    def _done(self) -> None:
        if self.task == _SCORES:
            self.ready += 1
        elif self.task == _GENERATES:
            self.queued += 1
        elif self.task == _GENERATES_LATER:
            self.later += 1
        self.task = _IDLE

    def _dispatch(self, now: int) -> None:
        if self.queued:
            self.queued -= 1
            self.task, self.end = _SCORES, now + self.score
        elif self.later:
            self.later -= 1
            self.task, self.end = _SCORES_LATER, now + self.score
        elif self.pending:
            self.pending -= 1
            self.task, self.end = _GENERATES, now + self.generate
        elif self.stale:
            self.stale -= 1
            self.task, self.end = _GENERATES_LATER, now + self.generate

    def wait(self) -> int:
        at = self.end
        while not self.ready:
            at = self.end
            self._done()
            self._dispatch(at)
        return at

    def first(self, num: int) -> Self:
        """By arrival: UQ, the running score, SQ, what is being generated, what is pending."""
        other = self.copy()
        other.ready = min(self.ready, num)
        num -= other.ready
        if self.task == _SCORES and not num:
            other.task = _SCORES_LATER
        num -= other.task == _SCORES
        other.queued = min(self.queued, num)
        num -= other.queued
        if self.task == _GENERATES and not num:
            other.task = _GENERATES_LATER
        num -= other.task == _GENERATES
        other.pending = min(self.pending, num)
        return other

    def remaining(self) -> int:
        return self.pending + self.queued + self.ready + (self.task in (_GENERATES, _SCORES))

    def finish(self, now: int, back: int, update: int) -> int:
        """Arrivals: the running score, then SQ in one burst, then one each generation and score."""
        left = self.remaining()
        ready, end = self.ready, self.end
        if ready:
            best, left = now + back + left * update, left - ready
        elif not left:
            return now
        else:
            first = end if self.task == _SCORES else end + self.score
            best = first + back + left * update
        burst = self.queued
        if self.task == _SCORES:
            best = max(best, end + left * update)
            left -= 1
        elif self.task == _GENERATES:
            burst += 1
        if burst:
            best = max(best, end + self.score + left * update)
            left -= burst
            best = max(best, end + burst * self.score + (left + 1) * update)
        if left:
            cycle = self.generate + self.score
            after = end + burst * self.score
            best = max(best, after + cycle + left * update, after + left * cycle + update)
        return best

    def phase(self, now: int) -> tuple[int, ...]:
        return (self.end - now, self.task, self.queued)

    def least(self, now: int) -> tuple[int, int, int]:
        left = self.end - now
        scoring = self.task == _SCORES
        work = self.pending * self.generate + (self.pending + self.queued + (not scoring)) * self.score
        soon = left if scoring else left + self.score
        return soon, left + work, 0

    def gap(self) -> int:
        return self.generate + self.score
