"""What no strategy could do: bounds on the shares that benchmarks/robustness.py reports, by computation.

- `answer_bound`: the first answer is given before anything is known. For either answer there are durations within 10 %
  with which the best continuation, all of them known, still falls short; the better of the two bounds every strategy.
- `eager_hindsight`: the best makespan, all durations known, of the class of orders that `bts` chooses from.
- `optimum_of_steps`: the best makespan of several global steps with stale work, over all orders of the trainer's tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, product

from broker.schedule.durations import Durations, Exact
from broker.schedule.simulate import Run, Setup, Task
from broker.schedule.times import Times
from broker.strategies import Answer, Static, TrainerView

LABELS = ("generate", "assist", "update", "score", "switch")


@dataclass(frozen=True, slots=True)
class Extreme:
    """Every task of a kind takes `tenths` / 10 of its time; `times` are in tenths of ticks."""

    times: Times
    tenths: tuple[tuple[str, int], ...]

    def ticks(self, label: str, step: int, index: int) -> int:
        value: int = getattr(self.times, label)
        return value // 10 * dict(self.tenths).get(label, 10)


def answer_bound(setup: Setup) -> float:
    """The largest share of hindsight that a strategy can be sure of with durations that vary by a tenth."""
    worst = {Answer.TAG: 1.0, Answer.WAIT: 1.0}
    times = setup.model.times.finer(10)
    for tenths in product((9, 11), repeat=len(LABELS)):
        ends = _best_by_answer(setup, Extreme(times, tuple(zip(LABELS, tenths, strict=True))))
        for answer, end in ends.items():
            worst[answer] = min(worst[answer], min(ends.values()) / end)
    return max(worst.values())


def _best_by_answer(setup: Setup, durations: Durations) -> dict[Answer, int]:
    """Once the first answer is given, TAG first and then updates is the best order for each number of TAG."""
    tag = min(_with(Run.of(setup, durations), num) for num in range(1, setup.micro_batches))
    run = Run.of(setup, durations)
    if run.question() is None:
        raise AssertionError("the trainer is free at the beginning")
    run.answer(Answer.WAIT)
    run.question()
    return {Answer.TAG: tag, Answer.WAIT: min(_with(run, num) for num in range(setup.micro_batches))}


def _with(run: Run, num: int) -> int:
    return run.copy().until_commit(Static(num))


def eager_hindsight(setup: Setup, durations: Durations, found: int) -> int:
    """Ticks of one global step without y, of the orders that update whenever UQ is not empty; `found`: one of them.

    Best first, by a bound that counts the trainer's tasks, two switches for a TAG that is in UQ at once, and the pool.
    """
    heap = [(0, 0, Run.of(setup, durations))]
    seen: set[tuple[object, ...]] = set()
    pushed, best = 0, found
    while heap:
        bound, _, run = heappop(heap)
        if bound >= best:
            break
        view = run.question()
        if view is None:
            best = min(best, run.now)
            continue
        state = _state(run)
        if state in seen:
            continue
        seen.add(state)
        for answer in _eager(view):
            after = run.copy()
            after.answer(answer)
            pushed += 1
            least = _least(after)
            if least < best:
                heappush(heap, (least, pushed, after))
    return best


def _eager(view: TrainerView) -> Iterator[Answer]:
    yield Answer.UPDATE if view.ready else Answer.WAIT
    if view.pending and not view.ready:
        yield Answer.TAG


def _state(run: Run) -> tuple[object, ...]:
    """All that decides how a run goes on, at an instant at which the trainer is asked, relative to it."""
    return (
        run.now,
        tuple(sorted(run.counts.items())),
        run.pending,
        *_shape(run),
    )


def _shape(run: Run) -> tuple[object, ...]:
    tasks = [_relative(task, run) for task in (run.generator, *run.servers)]
    return (tuple(run.sq), tuple(run.uq), run.updated, run.stale, run.claimed_early, run.generating, *tasks)


def _relative(task: Task | None, run: Run) -> tuple[str, int, int] | None:
    return None if task is None else (task.label, task.step - run.step, task.end - run.now)


def _least(run: Run) -> int:
    """No commit of the open global step is sooner."""
    setup, durations, counts = run.setup, run.durations, run.counts
    done, assisted, made = (counts.get((label, 0), 0) for label in ("update", "assist", "generate"))
    updates = sum(durations.ticks("update", 0, at) for at in range(done, setup.micro_batches))
    last = durations.ticks("update", 0, setup.micro_batches - 1) if done < setup.micro_batches else 0
    scored = counts.get(("score", 0), 0)
    by_pool = 0 if setup.dedicated else setup.micro_batches - scored
    scores = sum(durations.ticks("score", 0, scored + at) for at in range(by_pool))
    pairs = 2 * durations.ticks("switch", 0, 0) * 9 // 11 if setup.model.times.score == 0 else 0
    free = run.trainer.end if run.trainer else run.now
    pool = run.generator.end if run.generator else run.now
    assists = list(accumulate((durations.ticks("assist", 0, assisted + at) for at in range(run.pending)), initial=0))
    makes = list(accumulate((durations.ticks("generate", 0, made + at) for at in range(run.pending)), initial=0))
    return min(
        max(free + assists[num] + num * pairs + updates, pool + makes[run.pending - num] + scores + last)
        for num in range(run.pending + 1)
    )


def optimum_of_steps(setup: Setup) -> int:
    """Ticks to the last commit, without noise; every answer at every free instant is tried, TAG of stale work too."""
    known: dict[tuple[object, ...], int] = {}

    def after(run: Run) -> int:
        begun = run.now
        view = None
        while not run.over and view is None:
            view = run.question()
        if view is None:
            return run.now - begun
        state = (run.step, run.pending, run.waits, *_shape(run))
        if state not in known:
            first, *others = _all(view)
            best = branch(run, first)
            for answer in others:
                best = min(best, branch(run, answer))
            known[state] = best
        return run.now - begun + known[state]

    def branch(run: Run, answer: Answer) -> int:
        copy = replace(run.copy(), counts={})
        copy.answer(answer)
        return after(copy)

    return after(Run.of(setup, Exact(setup.model.times)))


def _all(view: TrainerView) -> Iterator[Answer]:
    yield Answer.UPDATE if view.ready else Answer.WAIT
    if view.pending:
        yield Answer.TAG
