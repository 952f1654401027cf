"""Why a job took as long as it did: `digenctl explain JOB`. Records in, figures and reasons out.

Owns what is told of a whole job and of the decisions of one global step. Global steps are counted from 1 and times are
seconds since the job's start, as people see them elsewhere. Source: docs/scheduling.md.
"""

from collections import Counter
from dataclasses import dataclass
from statistics import median

from digend.telemetry.publishings import PublishSum, publishings
from digend.telemetry.reasons import remedy, why
from digend.telemetry.switches import SwitchSum, switches
from digend.telemetry.trail import Asked, Period, Step, Trail
from digend.wire.records import IdleRecord, TaskRecord

LONGEST = 5
"""Bubbles that are listed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleSum:
    """All bubbles of a worker with one cause. `share`: of the job's time; `remedy`: what would shorten them."""

    worker: str
    cause: str
    seconds: float
    share: float
    count: int
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """`id`: the number of its record."""

    id: int
    worker: str
    start_s: float
    end_s: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What a worker did next: `what` is its task (assist: TAG), bubble or idle; `id` the number of its record;
    `micro_batch` -1 and `cause` empty where it has none.
    """

    what: str
    id: int
    seconds: float
    micro_batch: int = -1
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A decision. `end_s`: when the last update would end as planned, `without_s`: with updates only (None: not
    predicted), `actual_s`: when it did (None: not yet). `times_s`: of one micro-batch, as the search took them.
    """

    id: int
    at_s: float
    global_step: int
    strategy: str
    answer: str
    pending: int
    ready: int
    tags: int
    end_s: float | None
    without_s: float | None
    actual_s: float | None
    times_s: dict[str, float]
    states: int
    exhausted: bool
    why: str
    then: Followed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The first prediction of each closed global step (of each rollout, where one feeds several) against its actual
    end. Errors are actual minus predicted; `median_s`, `median_share`: of their sizes, in seconds and as share of the
    time predicted.
    """

    num_steps: int
    median_s: float
    median_share: float
    worst_s: float
    worst_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The trainer, or one of its ranks, was lost: the job went on from global step `global_step`."""

    at_s: float
    incarnation: int
    global_step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`answers`: how often each; `searches`: decisions that searched, `exhausted`: how many of these ran out of
    budget. `decisions` are those of `global_step`, which ended its updates at `step_end_s` (None: not closed, or it had
    none); `step_skipped`: why it is closed and trained nothing, "" where it did or is open. `width`: the TSP width that
    was measured, in words, "" where it was a number of the job file.
    """

    job: str
    strategy: str
    seconds: float
    answers: dict[str, int]
    searches: int
    exhausted: int
    bubbles: tuple[BubbleSum, ...]
    longest: tuple[Bubble, ...]
    forecast: Forecast | None
    switches: SwitchSum | None
    global_step: int | None
    step_end_s: float | None
    decisions: tuple[Answered, ...]
    step_skipped: str = ""
    restarts: tuple[Restart, ...] = ()
    publishings: PublishSum | None = None
    width: str = ""


def explain(trail: Trail, global_step: int | None = None) -> Explanation | None:
    """Of a whole job, with the decisions of one global step: the last that has any, if none is named. None where the
    one that is named has none.
    """
    index = trail.decisions[-1].decision.global_step if trail.decisions else None
    step = trail.latest(index if global_step is None else global_step - 1) if index is not None else None
    if step is None and global_step is not None:
        return None
    end_ns = trail.end_of(step) if step else None
    tasks = [period.body for period in trail.periods if isinstance(period.body, TaskRecord)]
    answers = Counter({"update": 0, "tag": 0, "wait": 0})
    answers.update(asked.decision.answer for asked in trail.decisions)
    return Explanation(
        job=trail.job,
        strategy=trail.decisions[-1].decision.strategy if trail.decisions else "",
        seconds=trail.seconds(trail.end_ns),
        answers=dict(answers),
        searches=sum(asked.decision.states > 0 for asked in trail.decisions),
        exhausted=sum(asked.decision.exhausted for asked in trail.decisions),
        bubbles=tuple(_sums(trail)),
        longest=tuple(_longest(trail)),
        forecast=_forecast(trail),
        switches=switches(tasks, (asked.decision for asked in trail.decisions)),
        publishings=publishings(tasks, trail.stagings),
        width=trail.width,
        global_step=step[1] + 1 if step else None,
        step_skipped=trail.skipped(step) if step else "",
        step_end_s=None if end_ns is None else trail.seconds(end_ns),
        decisions=tuple(answered(trail, asked) for asked in trail.of_step(step)) if step else (),
        restarts=tuple(
            Restart(
                at_s=trail.seconds(at_ns),
                incarnation=body.incarnation,
                global_step=body.global_step,
                reason=body.reason,
            )
            for at_ns, body in trail.restarts
        ),
    )


def answered(trail: Trail, asked: Asked) -> Answered:
    """One decision, with what it was taken for and what became of it."""
    decision = asked.decision
    actual = trail.end_of(asked.until)
    return Answered(
        id=asked.seq,
        at_s=trail.seconds(asked.at_ns),
        global_step=decision.global_step + 1,
        strategy=decision.strategy,
        answer=decision.answer,
        pending=decision.pending,
        ready=decision.ready,
        tags=decision.tags,
        end_s=_predicted(trail, asked, decision.end_us),
        without_s=_predicted(trail, asked, decision.without_us),
        actual_s=None if actual is None else trail.seconds(actual),
        times_s={name: us / 1e6 for name, us in decision.times_us.items()},
        states=decision.states,
        exhausted=decision.exhausted,
        why=why(trail, asked),
        then=followed(trail.trained(asked.at_ns), asked.at_ns),
    )


def _predicted(trail: Trail, asked: Asked, us: int | None) -> float | None:
    return None if us is None else trail.seconds(asked.at_ns + us * 1000)


def followed(period: Period | None, at_ns: int) -> Followed | None:
    """What a worker was at from `at_ns` on."""
    if period is None:
        return None
    body, seconds = period.body, (period.body.end_ns - at_ns) / 1e9
    if isinstance(body, TaskRecord):
        return Followed(what=body.task, id=period.seq, seconds=seconds, micro_batch=body.micro_batch)
    return Followed(what="bubble" if body.bubble else "idle", id=period.seq, seconds=seconds, cause=body.cause)


def _sums(trail: Trail) -> list[BubbleSum]:
    """The biggest first."""
    spent: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for _, body in trail.bubbles:
        spent[body.worker, body.cause] += body.end_ns - body.start_ns
        count[body.worker, body.cause] += 1
    whole = max(1, trail.end_ns - trail.start_ns)
    return [
        BubbleSum(
            worker=worker,
            cause=cause,
            seconds=ns / 1e9,
            share=ns / whole,
            count=count[worker, cause],
            remedy=remedy(cause),
        )
        for (worker, cause), ns in sorted(spent.items(), key=lambda each: (-each[1], each[0]))
    ]


def _longest(trail: Trail) -> list[Bubble]:
    found = sorted(trail.bubbles, key=lambda each: (each[1].start_ns - each[1].end_ns, each[0]))
    return [bubble_of(trail, seq, body) for seq, body in found[:LONGEST]]


def bubble_of(trail: Trail, seq: int, body: IdleRecord) -> Bubble:
    start_s, end_s = trail.seconds(body.start_ns), trail.seconds(body.end_ns)
    return Bubble(id=seq, worker=body.worker, start_s=start_s, end_s=end_s, cause=body.cause)


def _forecast(trail: Trail) -> Forecast | None:
    """None without a closed global step of which something was predicted."""
    first: dict[Step, Asked] = {}
    for asked in trail.decisions:
        if asked.decision.end_us is not None:
            first.setdefault(asked.until, asked)
    errors: list[tuple[int, int, float]] = []
    for step, asked in first.items():
        end, predicted = trail.end_of(step), (asked.decision.end_us or 0) * 1000
        if end is not None:
            error = end - asked.at_ns - predicted
            errors.append((error, step[1] + 1, abs(error) / max(1, predicted)))
    if not errors:
        return None
    worst, worst_step, _ = max(errors, key=lambda each: abs(each[0]))
    return Forecast(
        num_steps=len(errors),
        median_s=median(abs(error) for error, _, _ in errors) / 1e9,
        median_share=median(share for _, _, share in errors),
        worst_s=worst / 1e9,
        worst_step=worst_step,
    )
