"""Why one bubble is there: `digenctl explain bubble ID`. Records in, figures and reasons out.

Owns the finding of the decision that led to it, and of what the alternatives would have come to. Times are seconds
since the job's start. Source: docs/scheduling.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from digend.telemetry.explain import Answered, Bubble, Followed, answered, bubble_of, followed
from digend.telemetry.reasons import remedy, why
from digend.telemetry.trail import Asked, Trail
from digend.wire.records import IdleRecord, TaskRecord

_MARGIN_NS = 500_000
"""Times are written in milliseconds, so that one may name an instant just before its bubble."""

_WAIT_FOR = {
    "update": "no micro-batch may be claimed before the global step is committed",
    "no sample to score": "SQ is empty",
    "weights": "a new policy version is being published and staged",
    "encoding of prompts": "no pending micro-batch has its prompts encoded",
}
_WAIT_FOR_TRAINER = ("update", "no sample to score")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task beside the bubble; `global_step` counted from 1."""

    worker: str
    task: str
    micro_batch: int
    global_step: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An answer, with so many TAG from then on; `end_s`: when the last update of the global step would end (where
    `at_least`: then or later, by the times of the search and the updates that were left).
    """

    answer: str
    tags: int
    end_s: float
    at_least: bool = False
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleExplanation:
    """`running`: what the others were at when it began; `updates_left`: updates of the open global step that began
    later (None: it is not closed). `decision`: the one that led to it; where there was no choice, or another worker
    waits for the trainer, the last prediction before it; None where no decision did. `ended_by`: tasks that ended with
    it; `then`: what the worker did next.
    """

    job: str
    bubble: Bubble
    why: str
    remedy: str
    running: tuple[Work, ...]
    updates_left: int | None
    decision: Answered | None
    alternatives: tuple[Alternative, ...]
    ended_by: tuple[Work, ...]
    then: Followed | None


def explain_bubble(trail: Trail, name: str) -> BubbleExplanation | None:
    """`name`: the number of its record, or WORKER@SECONDS of an instant in it. None where there is no such bubble."""
    found = _find(trail, name)
    if found is None:
        return None
    seq, body = found
    asked = _led_to(trail, body)
    return BubbleExplanation(
        job=trail.job,
        bubble=bubble_of(trail, seq, body),
        why=_why(trail, body, asked),
        remedy=remedy(body.cause),
        running=tuple(_work(trail, task) for task in trail.tasks_at(body.start_ns)),
        updates_left=trail.updates_after(asked.step, body.start_ns) if asked else None,
        decision=answered(trail, asked) if asked else None,
        alternatives=tuple(_alternatives(trail, asked)) if asked else (),
        ended_by=tuple(_work(trail, task) for task in trail.tasks_ending(body.end_ns)),
        then=followed(trail.doing(body.worker, body.end_ns), body.end_ns),
    )


def _find(trail: Trail, name: str) -> tuple[int, IdleRecord] | None:
    worker, _, at = name.rpartition("@")
    try:
        if not worker:
            return next(each for each in trail.bubbles if each[0] == int(at))
        at_ns = trail.start_ns + round(float(at) * 1e9) + _MARGIN_NS
        period = trail.doing(worker, at_ns)
    except (ValueError, OverflowError, StopIteration):
        return None
    if period is None or not isinstance(period.body, IdleRecord) or not period.body.bubble:
        return None
    return period.seq, period.body


def _led_to(trail: Trail, body: IdleRecord) -> Asked | None:
    """The trainer idles since it was told to wait; else a worker waits for what was planned before."""
    if body.worker in trail.trainers:
        last = trail.decision_before(body.end_ns - 1)
        if last is None or last.decision.answer == "wait":
            return last
        end_ns = trail.end_of(last.step)
        return _prediction(trail, last, body.start_ns) if end_ns is None or end_ns > body.start_ns else None
    last = trail.decision_before(body.start_ns)
    return _prediction(trail, last, body.start_ns) if last and body.cause in _WAIT_FOR_TRAINER else None


def _prediction(trail: Trail, last: Asked, at_ns: int) -> Asked:
    """The newest of the same global step; `last` if there is none."""
    earlier = [asked for asked in trail.of_step(last.step) if asked.at_ns <= at_ns]
    return next((asked for asked in reversed(earlier) if asked.decision.end_us is not None), last)


def _why(trail: Trail, body: IdleRecord, asked: Asked | None) -> str:
    if body.worker not in trail.trainers:
        return _WAIT_FOR.get(body.cause, "")
    if asked is None or asked.decision.answer != "wait" or asked is not trail.decision_before(body.end_ns - 1):
        return "no choice: UQ was empty and nothing could be claimed"
    return why(trail, asked)


def _alternatives(trail: Trail, asked: Asked) -> Iterator[Alternative]:
    """What was chosen, updates only, and TAG at once: of the last only a bound is known where it was not chosen."""
    decision = asked.decision
    if decision.end_us is None or decision.without_us is None:
        return
    end_s, without_s = (trail.seconds(asked.at_ns + us * 1000) for us in (decision.end_us, decision.without_us))
    yield Alternative(answer=decision.answer, tags=decision.tags, end_s=end_s, chosen=True)
    if decision.tags:
        yield Alternative(answer="update" if decision.ready else "wait", tags=0, end_s=without_s)
    bound = _tag_first_us(trail, asked)
    if decision.answer != "tag" and bound is not None:
        yield Alternative(answer="tag", tags=1, end_s=trail.seconds(asked.at_ns + bound * 1000), at_least=True)


def _tag_first_us(trail: Trail, asked: Asked) -> int | None:
    """TAG, the updates that were left, and the switches: nothing that begins with TAG is over sooner."""
    times, left = asked.decision.times_us, trail.updates_after(asked.step, asked.at_ns)
    if left is None or not asked.decision.pending or asked.until != asked.step or "assist" not in times:
        return None
    switches = 1 if trail.generated_last(asked.at_ns) else 2
    return times["assist"] + left * times["update"] + switches * times["switch"]


def _work(trail: Trail, task: TaskRecord) -> Work:
    return Work(
        worker=task.worker,
        task=task.task,
        micro_batch=task.micro_batch,
        global_step=task.global_step + 1,
        start_s=trail.seconds(task.start_ns),
        end_s=trail.seconds(task.end_ns),
    )
