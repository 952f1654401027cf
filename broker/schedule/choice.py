"""An answer with its reasons, and the answers that need no search: shared by the strategies that search."""

from dataclasses import dataclass
from typing import Protocol, TypeGuard

from broker.schedule.moves import stale_is_free
from broker.schedule.snapshot import Model, Snapshot
from broker.strategies import Always, Answer, Never, Strategy, TrainerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`tags`: TAG planned from now on; `end`, `without`: ticks to the end of the last update as planned, and if the
    trainer only updates (None: not predicted); `states`: looked at in the search, 0: none was needed; `exhausted`: the
    budget ended before the search did, and the answer is that of `planned`.
    """

    answer: Answer
    tags: int = 0
    end: int | None = None
    without: int | None = None
    states: int = 0
    exhausted: bool = False


class Searching(Strategy, Protocol):
    """A strategy that can say why."""

    def search(self, view: TrainerView) -> Choice: ...


def searches(strategy: Strategy) -> TypeGuard[Searching]:
    """Asked at every free instant: of a protocol that can be checked at run time, isinstance takes fifty times as
    long."""
    return hasattr(strategy, "search")


def choose(strategy: Strategy, view: TrainerView) -> Choice:
    """The answer of any strategy, with reasons where it has some."""
    if searches(strategy):
        return strategy.search(view)
    return Choice(answer=strategy.decide(view))


def cold(view: TrainerView) -> Choice:
    """While nothing can be foreseen: as `never`, but for what measures TAG, at the first bubbles, and where nobody else
    generates. Where stale work fills UQ no bubble may come: then once without one."""
    if view.unsure and view.pending and not view.stale:
        return Choice(answer=Answer.PROBE)
    if view.unmeasured and view.pending and not view.ready:
        return Choice(answer=Answer.PROBE)
    return Choice(answer=(Always() if view.alone else Never()).decide(view))


def settled(view: TrainerView, model: Model, snapshot: Snapshot) -> Choice:
    """With nothing left to claim in this global step: update, and generate for the next one only where that is free."""
    if view.ready:
        return Choice(answer=Answer.UPDATE)
    free = view.pending > 0 and view.stale and snapshot.stale > 0 and stale_is_free(model, snapshot)
    return Choice(answer=Answer.TAG if free else Answer.WAIT)
