"""Explanations in words for people: lines and tables. Decides and computes nothing."""

from collections.abc import Iterator

from clients.output import Output
from clients.words import age, plural, share
from digend.telemetry.explain import Answered, Bubble, Explanation, Followed, Forecast
from digend.telemetry.explain_bubble import Alternative, BubbleExplanation, Work
from digend.telemetry.publishings import PublishSum
from digend.telemetry.switches import SwitchSum

_DOES = {"assist": "TAG", "update": "update", "generate": "generation", "score": "scoring", "commit": "optimizer step"}


def tell_job(output: Output, told: Explanation) -> None:
    for line in job_lines(told):
        output.line(line)
    if told.bubbles:
        output.line()
        rows = [
            (each.worker, each.cause, f"{each.seconds:.3f}", share(each.share), f"{each.count}")
            for each in told.bubbles
        ]
        output.table(("WORKER", "WAITS FOR", "SECONDS", "SHARE", "BUBBLES"), rows)
        output.line()
        output.table(("LONGEST", "WORKER", "FROM", "TO", "WAITS FOR"), [_bubble_row(each) for each in told.longest])
    if told.decisions:
        output.line(f"\nglobal step {told.global_step}, {_ended(told)}")
        columns = ("ID", "AT", "PENDING", "UQ", "ANSWER", "END", "WITHOUT", "THEN", "WHY")
        output.table(columns, [_decision_row(each) for each in told.decisions])


def _ended(told: Explanation) -> str:
    skipped = f"closed and skipped: {told.step_skipped}" if told.step_skipped else ""
    last = "" if told.step_end_s is None else f"its last update ended at {told.step_end_s:.3f} s"
    return ", ".join(part for part in (last, skipped) if part) or "not closed"


def job_lines(told: Explanation) -> Iterator[str]:
    yield f"job        {told.job}, {age(told.seconds)}"
    if not told.strategy:
        yield "answers    none: the trainer was never asked"
    else:
        answers = ", ".join(f"{count} {answer.upper()}" for answer, count in told.answers.items())
        yield f"answers    {answers} ({told.strategy})"
        out = plural(told.exhausted, "time") if told.exhausted else "never"
        yield f"searches   {told.searches}, {out} out of budget"
        yield f"predicted  {_forecast(told.forecast)}"
    if told.switches is not None:
        yield f"switches   {_switches(told.switches)}"
    if told.publishings is not None:
        yield from _publishings(told.publishings)
    if told.width:
        yield f"width      {told.width}"
    for restart in told.restarts:
        yield f"restarted  at {restart.at_s:.3f} s from global step {restart.global_step}: {restart.reason}"
    for worker in dict.fromkeys(each.worker for each in told.bubbles if "/trainer/" in each.worker):
        waits = [
            f"waiting for {each.cause} {each.seconds:.3f} s ({share(each.share)})"
            for each in told.bubbles
            if each.worker == worker
        ]
        yield f"trainer    {', '.join(waits)}"
    for cause, remedy in dict.fromkeys((each.cause, each.remedy) for each in told.bubbles if each.remedy):
        yield f"shorten    {cause}: {remedy}"


def _forecast(forecast: Forecast | None) -> str:
    if forecast is None:
        return "nothing of a global step that is closed"
    worst = f"global step {forecast.worst_step} ended {_later(forecast.worst_s)}"
    size = f"{forecast.median_s:.3f} s ({share(forecast.median_share)})"
    return f"ends of {plural(forecast.num_steps, 'global step')}: median error {size}, worst: {worst}"


def _switches(each: SwitchSum) -> str:
    named = (("offload", each.offload_s), ("load", each.load_s), ("restore", each.restore_s))
    parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in named if seconds)
    taken = "" if each.assumed_s is None else f"; the search takes one to cost {each.assumed_s:.3f} s"
    count = f"{each.to_generate} to generating, {each.to_train} back"
    return f"{count}, {each.seconds:.3f} s in all: {parts or 'no time'} (medians){taken}"


def _publishings(each: PublishSum) -> Iterator[str]:
    """`y` part by part; parts that never happened are left out."""
    named = (
        *(("optimizer", each.optimizer_s), ("gather", each.gather_s), ("cast", each.cast_s)),
        *(("publish", each.publish_s), ("send", each.send_s), ("stage", each.stage_s), ("swap", each.swap_s)),
    )
    parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in named if seconds)
    yield f"versions   {plural(each.num_commits, 'optimizer step')}: {parts or 'no time'} (medians)"
    if each.update_gather_s:
        part = share(each.update_share)
        yield f"ranks      gather {each.update_gather_s:.3f} s an update (median), {part} of updates"


def _later(seconds: float) -> str:
    return f"{abs(seconds):.3f} s {'later' if seconds >= 0 else 'sooner'} than predicted"


def _bubble_row(bubble: Bubble) -> tuple[str, ...]:
    return str(bubble.id), bubble.worker, f"{bubble.start_s:.3f}", f"{bubble.end_s:.3f}", bubble.cause


def _decision_row(each: Answered) -> tuple[str, ...]:
    then = _followed(each.then)
    end, without = _at(each.end_s), _at(each.without_s)
    return (
        str(each.id),
        f"{each.at_s:.3f}",
        str(each.pending),
        str(each.ready),
        each.answer.upper(),
        end,
        without,
        then,
        each.why,
    )


def _at(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"


def _followed(then: Followed | None) -> str:
    if then is None:
        return "-"
    what = f"{then.what} {then.id}: {then.cause}" if then.cause else _DOES.get(then.what, then.what)
    of = f" of micro-batch {then.micro_batch}" if then.micro_batch >= 0 else ""
    return f"{what}{of}, {then.seconds:.3f} s"


def bubble_lines(told: BubbleExplanation) -> Iterator[str]:
    bubble, decision = told.bubble, told.decision
    length = f"{bubble.end_s - bubble.start_s:.3f} s"
    yield f"bubble       {bubble.id} of {told.job}: {bubble.worker} from {bubble.start_s:.3f} s to {bubble.end_s:.3f} s"
    yield f"waits for    {bubble.cause}, {length}"
    if told.why:
        yield f"why          {told.why}"
    if decision is not None:
        yield f"decision     {decision.id} at {decision.at_s:.3f} s: {decision.answer.upper()} ({decision.strategy})"
        yield f"inputs       {decision.pending} pending, {decision.ready} in UQ"
        if decision.times_s:
            times = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in decision.times_s.items())
            yield f"times        {times}; {plural(decision.states, 'state')} looked at"
    for alternative in told.alternatives:
        yield f"{'chosen' if alternative.chosen else 'alternative':<13}{_alternative(alternative)}"
    for work in told.running:
        yield f"beside it    {_work(work)} until {work.end_s:.3f} s"
    if told.updates_left is not None and decision is not None:
        yield f"outstanding  {plural(told.updates_left, 'update')} of global step {decision.global_step}"
    for work in told.ended_by:
        yield f"ended by     {_work(work)}"
    yield f"then         {_followed(told.then)}"
    if decision is not None and decision.actual_s is not None:
        yield f"in the end   the last update ended at {_end(decision, decision.actual_s)}"
    if told.remedy:
        yield f"shorten      {told.remedy}"


def _alternative(each: Alternative) -> str:
    what = each.answer.upper()
    if each.at_least:
        return f"{what} at once: the last update ends at {each.end_s:.3f} s or later"
    tags = f"with {each.tags} TAG" if each.tags else "without TAG"
    return f"{what}, {tags} from then on: the last update ends at {each.end_s:.3f} s"


def _work(work: Work) -> str:
    of = f" of micro-batch {work.micro_batch} (global step {work.global_step})" if work.micro_batch >= 0 else ""
    return f"{work.worker}: {_DOES.get(work.task, work.task)}{of}"


def _end(decision: Answered, actual_s: float) -> str:
    late = "" if decision.end_s is None else f", {_later(actual_s - decision.end_s)}"
    return f"{actual_s:.3f} s{late}"
