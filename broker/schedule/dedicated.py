"""Reward processes score, each one item at a time; the generator only generates.

SQ holds items of the open global step before those of the next one, and a task that has begun is not interrupted.
"""

from typing import Self

from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supply import LATER, NOTHING, OWN


class Dedicated:
    """`end`: when the generator is done, -1: it idles; `generates_later`: its task is of the next global step. `busy`:
    the servers' tasks as (end, of the next global step), the soonest first."""

    __slots__ = (
        "busy",
        "end",
        "generate",
        "generates_later",
        "later",
        "pending",
        "queued",
        "ready",
        "score",
        "scorers",
        "stale",
    )
    one_a_run = False

    def __init__(self, model: Model, snapshot: Snapshot) -> None:
        self.generate, self.score, self.scorers = model.times.generate, model.times.score, model.servers
        self.pending, self.ready, self.stale = snapshot.pending, snapshot.ready, snapshot.stale
        self.queued, self.later = snapshot.queued, snapshot.later
        running = snapshot.generator
        self.end = -1 if running is None else running.left
        self.generates_later = running is not None and running.later
        self.busy = sorted((task.left, task.later) for task in snapshot.servers)

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other.generate, other.score, other.scorers = self.generate, self.score, self.scorers
        other.pending, other.ready, other.stale = self.pending, self.ready, self.stale
        other.queued, other.later, other.end = self.queued, self.later, self.end
        other.generates_later, other.busy = self.generates_later, self.busy.copy()
        return other

    def advance(self, now: int, bring: int = NOTHING) -> None:
        while (at := self._next()) is not None and at < now:
            self._done(at)
            self._dispatch(at)
        self._done(now)
        if bring == OWN:
            self.queued += 1
        elif bring == LATER:
            self.later += 1
        self._dispatch(now)

    def _next(self) -> int | None:
        if not self.busy:
            return self.end if self.end >= 0 else None
        soonest = self.busy[0][0]
        return self.end if 0 <= self.end < soonest else soonest

    def _done(self, now: int) -> None:
        busy = self.busy
        while busy and busy[0][0] <= now:
            if not busy.pop(0)[1]:
                self.ready += 1
        if 0 <= self.end <= now:
            self.end = -1
            if self.generates_later:
                self.later += 1
            else:
                self.queued += 1

    def _dispatch(self, now: int) -> None:
        while len(self.busy) < self.scorers and (self.queued or self.later):
            own = self.queued > 0
            if own:
                self.queued -= 1
            else:
                self.later -= 1
            self.busy.append((now + self.score, not own))
        if self.end < 0 and (self.pending or self.stale):
            self.generates_later = not self.pending
            if self.pending:
                self.pending -= 1
            else:
                self.stale -= 1
            self.end = now + self.generate

    def wait(self) -> int:
        at = 0
        while not self.ready:
            soonest = self._next()
            if soonest is None:
                raise AssertionError("nothing is still to come")
            at = soonest
            self._done(at)
            self._dispatch(at)
        return at

    def first(self, num: int) -> Self:
        """By arrival: UQ, running scores, SQ, what is being generated, what is pending."""
        other = self.copy()
        other.ready = min(self.ready, num)
        num -= other.ready
        for at, (end, later) in enumerate(self.busy):
            other.busy[at] = (end, later or not num)
            num -= not later and num > 0
        other.queued = min(self.queued, num)
        num -= other.queued
        other.generates_later = self.generates_later or not num
        num -= self.end >= 0 and not other.generates_later
        other.pending = min(self.pending, num)
        return other

    def remaining(self) -> int:
        scoring = sum(not later for _, later in self.busy)
        generating = self.end >= 0 and not self.generates_later
        return self.pending + self.queued + self.ready + scoring + generating

    def finish(self, now: int, back: int, update: int) -> int:
        """The i-th item to be scored is done at max(its arrival, the end of the n-th before it) + s, n servers."""
        left = self.remaining()
        if not left:
            return now
        best, first = (now + back + left * update, now) if self.ready else (0, -1)
        left -= self.ready
        for end, later in self.busy:
            if not later:
                first = end if first < 0 else first
                best = max(best, end + left * update)
                left -= 1
        if left:
            at, scored = self._scored(now, left, update)
            best = max(best, scored)
            first = at if first < 0 else first
        return best if self.ready else max(best, first + back + (self.remaining()) * update)

    def _scored(self, now: int, items: int, update: int) -> tuple[int, int]:
        """When the first of `items` still to be scored is done, and the latest end that they force.

        Chains of one server: from its being free, or from the arrival of one of its items on. What they force is linear
        in the first and the last item, so that only the ends count.
        """
        score, num, waiting = self.score, self.scorers, self.queued
        free = [now] * (num - len(self.busy)) + [end for end, _ in self.busy]
        start = self.end - waiting * self.generate
        latest = earliest = 0
        for at in range(min(num, items)):
            last = at + (items - 1 - at) // num * num
            first = at if at >= waiting else at + -(-(waiting - at) // num) * num
            chains = [(free[at], at, at)]
            if first <= last:
                chains += [(start + first * self.generate, first, first), (start + last * self.generate, last, last)]
            for begin, of, upto in chains:
                for index in (upto, last):
                    done = begin + ((index - of) // num + 1) * score
                    latest = max(latest, done + (items - index) * update)
            if at == 0:
                earliest = max(free[0], start if waiting == 0 else 0) + score
        return earliest, latest

    def phase(self, now: int) -> tuple[int, ...]:
        return (self.end - now, self.queued, *(end - now for end, _ in self.busy))

    def least(self, now: int) -> tuple[int, int, int]:
        left = self.end - now
        soon = self.busy[0][0] - now if self.busy else left + self.score
        work = sum(end - now for end, _ in self.busy) + (self.queued + self.pending + 1) * self.score
        return soon, left + self.pending * self.generate + self.score, work

    def gap(self) -> int:
        return max(self.generate, self.score)
