"""An answer with its reasons, and the answers that need no search: shared by the strategies that search."""

from dataclasses import dataclass
from typing import Protocol

from broker.schedule.moves import stale_is_free
from broker.schedule.snapshot import Model, Snapshot
from broker.strategies import Always, Answer, Strategy, TrainerView


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


def cold(view: TrainerView) -> Choice:
    """While a time is not known: as `always` at the first bubble of a global step, so that it is measured, then as
    `never`."""
    if view.ready or view.assisted == 0:
        return Choice(answer=Always().decide(view))
    return Choice(answer=Answer.WAIT)


def settled(view: TrainerView, model: Model, snapshot: Snapshot) -> Choice:
    """With nothing left to claim in this global step: update, and generate for the next one only where that is free."""
    if view.ready:
        return Choice(answer=Answer.UPDATE)
    free = view.stale and snapshot.stale > 0 and stale_is_free(model, snapshot)
    return Choice(answer=Answer.TAG if free else Answer.WAIT)
