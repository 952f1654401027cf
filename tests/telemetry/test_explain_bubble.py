"""One bubble: what led to it, what else could have been done, what came of it."""

from typing import Any

import pytest

from digend.telemetry.explain import explain
from digend.telemetry.explain_bubble import BubbleExplanation, explain_bubble
from digend.telemetry.trail import Trail
from tests.broker.support import GENERATOR, TRAINER
from tests.telemetry.test_explain import closed, decision, idle, ran, stream, task


def found(trail: Trail, name: str) -> BubbleExplanation:
    explanation = explain_bubble(trail, name)
    assert explanation is not None
    return explanation


TIMES_US = {"generate": 4_000_000, "assist": 5_000_000, "update": 2_000_000, "switch": 500_000, "score": 0, "commit": 0}
SEARCHED: dict[str, Any] = {"times_us": TIMES_US, "states": 4}


def waited() -> Trail:
    """The trainer waits from 2 to 4 and then does two updates, which end at 8."""
    return Trail(
        stream(
            task("g", "generate", 0, 1, micro_batch=0),
            task("t", "update", 1, 2, micro_batch=0),
            decision(2, "wait", end_us=6_000_000, without_us=6_000_000, **SEARCHED),
            task("g", "generate", 1, 4, micro_batch=1),
            idle(2, 4, "generation"),
            decision(4, "update", pending=0, ready=1),
            task("t", "update", 4, 6, micro_batch=1),
            decision(6, "update", pending=0, ready=1),
            task("t", "update", 6, 8, micro_batch=2),
            idle(4, 9, "update", "g"),
            task("t", "commit", 8, 9, micro_batch=-1),
            closed(9, 1),
        )
    )


def test_a_bubble_of_the_trainer() -> None:
    told = found(waited(), "4")
    assert (told.bubble.worker, told.bubble.start_s, told.bubble.end_s) == ("t", 1.0, 3.0)  # since the first record
    assert told.decision is not None
    assert (told.decision.id, told.decision.answer, told.decision.end_s, told.decision.actual_s) == (
        2,
        "wait",
        7.0,
        7.0,
    )
    assert told.why == told.decision.why == "no number of TAG ends the step sooner"
    assert told.updates_left == 2
    (beside,) = told.running
    assert (beside.worker, beside.task, beside.micro_batch, beside.end_s) == ("g", "generate", 1, 3.0)
    assert told.ended_by == told.running
    assert told.then is not None
    assert (told.then.what, told.then.micro_batch, told.then.seconds) == ("update", 1, 2.0)
    chosen, other = told.alternatives
    assert (chosen.answer, chosen.end_s, chosen.chosen, chosen.at_least) == ("wait", 7.0, True, False)
    # TAG, two switches, two updates: 5 + 1 + 4 from second 2 on, which is 1 s after the first record
    assert (other.answer, other.end_s, other.chosen, other.at_least) == ("tag", 11.0, False, True)


def test_who_waits_for_the_trainer_is_shown_the_last_prediction() -> None:
    told = found(waited(), "9")
    assert told.bubble.worker == "g"
    assert told.why == "no micro-batch may be claimed before the global step is committed"
    assert told.decision is not None
    assert told.decision.id == 2
    assert told.updates_left == 2
    assert [work.task for work in told.ended_by] == ["commit"]
    assert told.then is None


def test_a_bubble_is_named_by_worker_and_time_too() -> None:
    trail = waited()
    assert found(trail, "t@1.000") == found(trail, "t@2.9") == found(trail, "4")
    for name in ("t@0.5", "t@3.0", "t@x", "g@-1", "x@1", "3", "99", "", "t@", "t@nan", "t@inf"):
        assert explain_bubble(trail, name) is None, name


def test_idle_time_that_is_no_bubble_is_not_found() -> None:
    trail = Trail(stream(idle(0, 2, "evaluation before", bubble=False)))
    assert explain_bubble(trail, "0") is None
    assert explain_bubble(trail, "t@1") is None


def test_without_a_choice_the_last_prediction_is_shown() -> None:
    bodies = (
        decision(0, "tag", tags=1, end_us=7_000_000, without_us=9_000_000, **SEARCHED),
        task("t", "assist", 0, 1),
        decision(1, "update", pending=0, ready=1),
        task("t", "update", 1, 2),
        idle(2, 4, "reward"),
        task("t", "update", 4, 6, micro_batch=1),
        closed(6, 1),
        idle(6, 8, "generation"),
    )
    trail = Trail(stream(*bodies))
    told = found(trail, "4")
    assert told.why == "no choice: UQ was empty and nothing could be claimed"
    assert told.decision is not None
    assert (told.decision.id, told.updates_left) == (0, 1)
    assert [(each.answer, each.end_s) for each in told.alternatives] == [("tag", 7.0), ("wait", 9.0)]
    later = found(trail, "7")
    assert (later.decision, later.alternatives, later.updates_left) == (None, (), None)
    assert later.why == told.why


def test_one_wait_may_have_several_causes() -> None:
    told = found(
        Trail(stream(decision(0, "wait"), idle(0, 1, "generation"), idle(1, 3, "reward"), task("t", "update", 3, 4))),
        "2",
    )
    assert told.decision is not None
    assert told.decision.answer == "wait"


def test_after_tag_going_on_generating_costs_one_switch() -> None:
    trail = Trail(
        stream(
            task("t", "assist", 0, 1),
            decision(1, "wait", end_us=3_000_000, without_us=3_000_000, **SEARCHED),
            idle(1, 2, "generation"),
            task("t", "update", 2, 4),
            closed(5, 1),
        )
    )
    assert found(trail, "2").alternatives[1].end_s == 5 + 0.5 + 2  # the job's time begins with its first record, at 1


def test_what_a_plan_with_tag_was_better_than() -> None:
    trail = Trail(
        stream(
            decision(0, "wait", tags=2, end_us=4_000_000, without_us=6_000_000, **SEARCHED),
            idle(0, 2, "generation"),
            task("t", "update", 2, 4),
        )
    )
    plan, without = found(trail, "1").alternatives
    assert (plan.answer, plan.tags, plan.end_s, plan.chosen) == ("wait", 2, 4.0, True)
    assert (without.answer, without.tags, without.end_s, without.chosen) == ("wait", 0, 6.0, False)


@pytest.mark.parametrize("strategy", ["never", "bts", "planned"])
@pytest.mark.parametrize("num_rewards", [0, 1])
def test_every_bubble_of_a_run_can_be_explained(strategy: str, num_rewards: int) -> None:
    trail = Trail(ran(strategy, num_rewards=num_rewards, steps=3).records["j1"])
    bubbles = list(trail.bubbles)
    assert {GENERATOR} | ({TRAINER} if strategy == "never" else set()) <= {body.worker for _, body in bubbles}
    for seq, body in bubbles:
        told = found(trail, str(seq))
        assert told.why
        assert told.remedy
        assert found(trail, f"{body.worker}@{trail.seconds(body.start_ns):.3f}") == told
        if body.worker == TRAINER and told.decision is not None and not told.why.startswith("no choice"):
            assert told.decision.answer == "wait"


def test_listed_bubbles_can_be_asked_for() -> None:
    trail = Trail(ran("never").records["j1"])
    explanation = explain(trail)
    assert explanation is not None
    assert explanation.longest
    assert [found(trail, str(each.id)).bubble for each in explanation.longest] == list(explanation.longest)
