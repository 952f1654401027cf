"""The optimum by trying everything: what the searches are held to, for a few micro-batches only.

Shares nothing with the searches but the model: it branches on whole simulated runs, and a situation met twice is
looked at once.
"""

from dataclasses import dataclass

from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Snapshot
from broker.strategies import Answer, TrainerView


@dataclass(frozen=True, slots=True, order=True)
class Optimum:
    """`end`: ticks to the commit; `tags`: the fewest TAG with which it is reached."""

    end: int
    tags: int


def optimum(setup: Setup, *, eager: bool) -> Optimum:
    """Of one global step. `eager`: among the strategies that update whenever UQ is not empty, as `bts` does; else among
    all orders of the trainer's tasks.

    Exponential where situations do not repeat: at most 12 micro-batches are taken. Raises ValueError for more.
    """
    if setup.micro_batches > 12 or setup.steps > 1:
        raise ValueError("the exhaustive search takes one global step of at most 12 micro-batches")
    return _from(Run.of(setup), eager, {})


def _from(run: Run, eager: bool, known: dict[Snapshot, Optimum]) -> Optimum:
    """Relative to the run's instant of now."""
    start = run.now
    view = run.question()
    if view is None or view.snapshot is None:
        return Optimum(run.now - start, 0)
    found = known.get(view.snapshot)
    if found is None:
        branches = [_after(run, answer, eager, known) for answer in _options(view, eager)]
        found = known[view.snapshot] = min(branches)
    return Optimum(run.now - start + found.end, found.tags)


def _after(run: Run, answer: Answer, eager: bool, known: dict[Snapshot, Optimum]) -> Optimum:
    branch = run.copy()
    branch.answer(answer)
    rest = _from(branch, eager, known)
    return Optimum(rest.end, rest.tags + (answer is Answer.TAG))


def _options(view: TrainerView, eager: bool) -> list[Answer]:
    first = Answer.UPDATE if view.ready else Answer.WAIT
    return [first, Answer.TAG] if view.pending and not (view.ready and eager) else [first]
