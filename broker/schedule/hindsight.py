"""The best makespan that could have been reached, all durations known beforehand: what a strategy is measured against.

For one global step, and for several without staleness, it is exact: each step begins with nothing under way, and the
argument of `broker.schedule.planned` holds for durations that vary by a task's place in the order too. With staleness
each step is made as short as it can be by itself, which need not be the best for all: it is then the best makespan
found, the run that is measured included.
"""

from itertools import accumulate

from broker.schedule.durations import Durations, Exact
from broker.schedule.planned import best
from broker.schedule.simulate import Run, Setup
from broker.strategies import Static


def hindsight(setup: Setup, durations: Durations, found: int) -> int:
    """Ticks; `found` is the makespan of a run of this setup with these durations."""
    run = Run.of(setup, durations)
    while not run.over:
        run = _step(run)
    return min(run.now, found)


def _step(run: Run) -> Run:
    """The run after its open global step, made the shortest by the best number of TAG first."""
    if isinstance(run.durations, Exact):
        return _with(run, _planned(run))
    bounds = _bounds(run)
    shortest: Run | None = None
    for tags in sorted(range(len(bounds)), key=lambda each: (bounds[each], each)):
        if shortest is not None and bounds[tags] >= shortest.now:
            break
        tried = _with(run, tags)
        if shortest is None or tried.now < shortest.now:
            shortest = tried
    if shortest is None:
        raise AssertionError("no TAG at all is always possible")
    return shortest


def _with(run: Run, tags: int) -> Run:
    after = run.copy()
    after.until_commit(Static(tags))
    return after


def _planned(run: Run) -> int:
    view = run.copy().question()
    if view is None or view.snapshot is None or view.model is None or not view.pending or view.stale:
        return 0
    return best(view.model, view.snapshot).tags


def _bounds(run: Run) -> list[int]:
    """By number of TAG: no commit is sooner, for the trainer's work, or for that of the generator pool."""
    setup, step, durations = run.setup, run.step, run.durations
    num, most = setup.micro_batches, run.pending if durations.times.assist is not None else 0
    updates = sum(durations.ticks("update", step, at) for at in range(num))
    last = durations.ticks("update", step, num - 1)
    commit = durations.ticks("commit", step, 0)
    assists = accumulate((durations.ticks("assist", step, at) for at in range(most)), initial=0)
    made = run.counts.get(("generate", step), 0)
    scored = run.counts.get(("score", step), 0)
    num_scores = 0 if setup.dedicated else num - scored
    scores = sum(durations.ticks("score", step, scored + at) for at in range(num_scores))
    generates = [durations.ticks("generate", step, made + at) for at in range(run.pending)]
    sums = list(accumulate(generates, initial=0))
    trainer = [run.now + assist + updates + commit for assist in assists]
    pool = [run.now + sums[run.pending - tags] + scores + last + commit for tags in range(most + 1)]
    return [max(each) for each in zip(trainer, pool, strict=True)]
