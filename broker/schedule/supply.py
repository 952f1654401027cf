"""Everything but the trainer, run forward fast: the generator pool and scoring, from SQ and UQ's point of view.

A `Supply` is mutable and cheap to copy; searches make thousands. Times are ticks from the start of the search, so that
moving on needs no rewriting. Knows nothing of strategies. Invariant: the same instants as `broker.schedule.simulate`,
of which it is the part that a search needs; the tests compare them.

Closed forms: once the trainer only updates, each item's arrival in UQ is linear in its index, piecewise, and so is what
it forces: arrival + (updates from it on) * t. The end of the last update is the largest of these, found at the pieces'
ends.
"""

from typing import Protocol, Self

NOTHING, OWN, LATER = 0, 1, 2
"""What the trainer brings at the instant that a supply is advanced to: a TAG result of this global step or the next."""


class Supply(Protocol):
    pending: int
    ready: int
    stale: int
    scorers: int
    one_a_run: bool
    """A TAG result is in UQ at once, so that an update follows every TAG of a strategy that updates when it can."""

    def copy(self) -> Self: ...

    def advance(self, now: int, bring: int = NOTHING) -> None:
        """Apply what is done until `now`, and what the trainer brings then, before anything is dispatched at `now`."""
        ...

    def wait(self) -> int:
        """Advance until UQ is not empty; returns when. Only where something is still to come."""
        ...

    def first(self, num: int) -> Self:
        """A copy with no updates to be done but the next `num`, on what comes to UQ first. Only to be finished."""
        ...

    def remaining(self) -> int:
        """Updates of the open global step to be done."""
        ...

    def finish(self, now: int, back: int, update: int) -> int:
        """When the last update ends if the trainer only updates from `now` on, the first one `back` ticks longer.

        Exact as long as nothing of the next global step waits in SQ.
        """
        ...

    def phase(self, now: int) -> tuple[int, ...]:
        """All but `pending`, relative to `now`; only where UQ is empty and micro-batches are pending."""
        ...

    def least(self, now: int) -> tuple[int, int, int]:
        """At a phase, relative to `now`: when the next arrival in UQ is if there is no TAG; no later than when the last
        is if the generator takes all that is pending (each TAG saves one generation); and ticks of scoring to be done
        by `scorers` at once before the last, whoever generates. The latter two are linear in `pending`."""
        ...

    def gap(self) -> int:
        """The longest time between two arrivals in UQ while micro-batches are pending."""
        ...
