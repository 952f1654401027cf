"""Explanations of whole jobs: on made-up streams, and on those of the real core under virtual time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.harness import Simulation
from broker.harness_times import Times
from clients.explain_text import _ended, job_lines
from digend.telemetry.explain import Answered, Explanation, Followed, explain
from digend.telemetry.reasons import remedy
from digend.telemetry.trail import Trail
from digend.wire import records as r
from digend.wire.records import Record
from digend.wire.tasks import Receipt
from tests.broker.support import MS, REWARD, TRAINER, S, finished, job, prompts

TIMES = Times(generate=100 * MS, assist=120 * MS, update=40 * MS, score=7 * MS, commit=11 * MS)


def ran(
    strategy: str = "planned", *, steps: int = 4, num_rewards: int = 0, times: Times = TIMES, **changes: Any
) -> Simulation:
    spec = job(
        prompts=prompts(12),
        prompts_per_rollout=12,
        num_global_steps=steps,
        strategy=strategy,
        scoring="dedicated" if num_rewards else "colocated",
        checkpoint_every=0,
    )
    return finished(replace(spec, **changes), 1, num_rewards, times=times, torpid_s=1e6, lost_s=2e6)


def explained(simulation: Simulation, step: int | None = None) -> Explanation:
    found = explain(Trail(simulation.records["j1"]), step)
    assert found is not None
    return found


def stream(*bodies: tuple[int, r.RecordBody]) -> list[Record]:
    """(seconds, body) in order."""
    return [Record(job="j", seq=seq, at_ns=at * S, body=body) for seq, (at, body) in enumerate(bodies)]


def task(worker: str, name: str, start: int, end: int, step: int = 0, micro_batch: int = 0) -> tuple[int, r.TaskRecord]:
    receipt = Receipt(total_ns=(end - start) * S, stages=())
    body = r.TaskRecord(
        worker=worker,
        task=name,
        lease=f"{start}",
        start_ns=start * S,
        end_ns=end * S,
        receipt=receipt,
        global_step=step,
        micro_batch=micro_batch,
    )
    return end, body


def closed(at: int, global_step: int, incarnation: int = 0) -> tuple[int, r.StepRecord]:
    zeros: dict[str, Any] = dict.fromkeys(
        (
            *(
                "seconds",
                "reward_mean",
                "reward_std",
                "num_samples",
                "num_masked",
                "num_selected",
                "num_groups",
                "z0",
                "z",
            ),
            *("num_dropped_groups", "num_zero_std_groups", "loss", "clip_fraction", "ratio_mean", "max_abs_log_ratio"),
            *("first_max_abs_log_ratio", "kl", "gradient_norm", "learning_rate", "stale_micro_batches"),
            "assisted_micro_batches",
        ),
        0,
    )
    body = r.StepRecord(global_step=global_step, version=global_step, incarnation=incarnation, components={}, **zeros)
    return at, body


def decision(at: int, answer: str, step: int = 0, **fields: Any) -> tuple[int, r.Decision]:
    given = {"strategy": "planned", "pending": 3, "ready": 0, **fields}
    return at, r.Decision(answer=answer, global_step=step, **given)


def idle(start: int, end: int, cause: str, worker: str = "t", *, bubble: bool = True) -> tuple[int, r.IdleRecord]:
    return end, r.IdleRecord(worker=worker, start_ns=start * S, end_ns=end * S, cause=cause, bubble=bubble)


def only(records: Sequence[Record]) -> Answered:
    found = explain(Trail(records))
    assert found is not None
    (answered,) = found.decisions
    return answered


@pytest.mark.parametrize("strategy", ["never", "always", "static:2", "bts", "planned"])
def test_every_decision_is_followed_by_what_it_asked_for(strategy: str) -> None:
    simulation = ran(strategy)
    told = Counter(each.body.answer for each in simulation.records["j1"] if isinstance(each.body, r.Decision))
    for step in range(1, 5):
        found = explained(simulation, step)
        assert found.answers == {"update": 0, "tag": 0, "wait": 0} | told
        assert (found.strategy, found.global_step) == (strategy, step)
        follows = {"update": "update", "tag": "assist", "probe": "assist", "wait": "bubble"}
        assert found.decisions
        for each in found.decisions:
            assert each.then is not None
            assert each.then.what == follows[each.answer]
            assert each.why
            assert each.actual_s == found.step_end_s


def test_in_virtual_time_the_prediction_is_the_end() -> None:
    """From the third global step on; before it, what TAG takes is not yet known."""
    found = explained(ran())
    predicted = [each for each in found.decisions if each.end_s is not None]
    assert predicted
    assert all(each.end_s == each.actual_s for each in predicted)
    assert any(each.answer == "tag" and (each.without_s or 0) > (each.end_s or 0) for each in predicted)
    assert found.forecast is not None
    assert found.forecast.num_steps >= 3
    assert found.forecast.median_s == 0
    assert found.searches > 10
    assert found.exhausted == 0


def test_a_switch_is_split_into_its_parts() -> None:
    """What was measured, and what the search went by."""
    times = replace(TIMES, switch=30 * MS)
    found = explained(ran("planned", times=times, tag_memory="offload")).switches
    assert found is not None
    assert found.to_generate - found.to_train in (0, 1)
    assert found.to_generate >= 4
    assert (found.offload_s, found.load_s, found.restore_s, found.assumed_s) == (0.03, 0.0, 0.03, 0.03)
    assert found.seconds == pytest.approx(0.03 * (found.to_generate + found.to_train))
    told = "\n".join(job_lines(explained(ran("planned", times=times, tag_memory="offload"))))
    assert "s in all: offload 0.030 s, restore 0.030 s (medians); the search takes one to cost 0.030 s" in told
    assert explained(ran("never", times=times)).switches is None


def test_restarts_are_told_with_what_was_lost() -> None:
    records = stream(
        (0, r.JobState(state="preparing", reason="")),
        (7, r.RestartRecord(incarnation=1, global_step=2, reason="trainer rank 1 (n/trainer/1) was lost: killed")),
    )
    found = explain(Trail(records))
    assert found is not None
    (restart,) = found.restarts
    assert (restart.at_s, restart.incarnation, restart.global_step) == (7.0, 1, 2)
    assert "restarted  at 7.000 s from global step 2: trainer rank 1 (n/trainer/1) was lost: killed" in job_lines(found)


def test_of_several_ranks_the_one_with_the_task_is_what_the_trainer_is_at() -> None:
    lost = r.WorkerState(worker="a", role="trainer", state="joined", reason="")
    trail = Trail(stream((0, lost), idle(1, 5, "follows update", "a", bubble=False), task("b", "update", 1, 5)))
    period = trail.trained(2 * S)
    assert period is not None
    assert period.body.worker == "b"


def test_bubbles_are_summed_by_worker_and_cause_the_biggest_first() -> None:
    simulation = ran("never", num_rewards=1)
    found = explained(simulation)
    spent: Counter[tuple[str, str]] = Counter()
    for each in simulation.records["j1"]:
        if isinstance(each.body, r.IdleRecord) and each.body.bubble:
            spent[each.body.worker, each.body.cause] += each.body.end_ns - each.body.start_ns
    assert {(each.worker, each.cause): each.seconds for each in found.bubbles} == {
        key: ns / 1e9 for key, ns in spent.items()
    }
    assert [each.seconds for each in found.bubbles] == sorted((each.seconds for each in found.bubbles), reverse=True)
    assert {(TRAINER, "generation"), (TRAINER, "reward"), (REWARD, "no sample to score")} <= spent.keys()
    assert all(each.remedy == remedy(each.cause) != "" for each in found.bubbles)
    assert all(each.share == pytest.approx(each.seconds / found.seconds) for each in found.bubbles)
    lengths = [each.end_s - each.start_s for each in found.longest]
    assert lengths == pytest.approx(sorted(spent_in_one(simulation), reverse=True)[:5])


def spent_in_one(simulation: Simulation) -> list[float]:
    bodies = [each.body for each in simulation.records["j1"]]
    return [(each.end_ns - each.start_ns) / 1e9 for each in bodies if isinstance(each, r.IdleRecord) and each.bubble]


def test_a_prediction_is_of_all_global_steps_that_its_rollout_feeds() -> None:
    simulation = ran(updates_per_rollout=2, steps=5)
    told = [each.body for each in simulation.records["j1"] if isinstance(each.body, r.Decision)]
    assert {each.global_step: each.until_step for each in told} == {0: 1, 1: 1, 2: 3, 3: 3, 4: 4}
    third, fourth = explained(simulation, 3), explained(simulation, 4)
    assert third.step_end_s is not None
    assert {each.actual_s for each in third.decisions} == {fourth.step_end_s} != {third.step_end_s}
    assert third.forecast is not None
    assert third.forecast.num_steps <= 3


def test_a_strategy_that_cannot_foresee_says_so_and_one_that_can_says_what_it_gains() -> None:
    simulation = ran()
    first, last = explained(simulation, 1).decisions, explained(simulation).decisions
    assert first[0].why == "nothing could be predicted yet; TAG of one sample measures how long it takes"
    tag = next(each for each in last if each.answer == "tag")
    assert tag.end_s is not None
    assert tag.without_s is not None
    assert tag.why == f"{tag.tags} TAG from here on end the step {tag.without_s - tag.end_s:.3f} s sooner"
    assert last[-1].why == "nothing is left to generate"


def test_stale_work_is_named() -> None:
    found = [explained(ran("planned", staleness=0.5, steps=6), step) for step in range(2, 6)]
    reasons = {each.why for explanation in found for each in explanation.decisions}
    assert "all of this global step is claimed; updates come before stale work" in reasons


def test_a_global_step_without_decisions_is_not_found() -> None:
    trail = Trail(ran().records["j1"])
    assert explain(trail, 5) is None
    assert explain(trail, 4) is not None


def test_without_decisions_there_is_still_an_account() -> None:
    found = explain(Trail(stream((0, r.JobState(state="running")), idle(0, 4, "update", "g"))))
    assert found is not None
    assert (found.strategy, found.global_step, found.decisions, found.forecast) == ("", None, (), None)
    assert found.bubbles[0].share == 1.0
    assert explain(Trail([]), None) is not None


def test_an_open_global_step_has_no_end_yet() -> None:
    records = stream(
        (0, r.JobState(state="running")), decision(1, "update", end_us=9_000_000), task("t", "update", 1, 2)
    )
    assert only(records).actual_s is None
    assert only(records).end_s == 10.0
    assert only([*records, *stream(closed(3, 1))]).actual_s == 2.0


@pytest.mark.parametrize("updated", [False, True], ids=["nothing to update on", "updates that were not taken"])
def test_a_skipped_global_step_is_closed(updated: bool) -> None:
    at, body = closed(30, 1)
    updates = [task("t", "update", 10, 20)] if updated else []
    records = stream(decision(5, "wait"), *updates, (at, replace(body, skipped="no sample survived scoring")))
    found = explain(Trail(records))
    assert found is not None
    assert found.step_skipped == "no sample survived scoring"
    assert _ended(found).endswith("closed and skipped: no sample survived scoring")
    assert ("its last update ended" in _ended(found)) is updated


def test_an_update_that_is_lost_is_told_as_such() -> None:
    lost = idle(2, 5, "lost update: no heartbeat", bubble=False)
    answered = only(stream((1, r.WorkerState(worker="t", role="trainer", state="joined")), decision(2, "update"), lost))
    assert answered.then == Followed(what="idle", id=2, seconds=3.0, cause="lost update: no heartbeat")


def test_a_global_step_made_again_is_the_newest_one() -> None:
    records = stream(
        (0, r.JobState(state="running")),
        decision(0, "update", end_us=1_000_000, without_us=1_000_000, states=1),
        task("t", "update", 0, 2),
        (3, r.RestartRecord(incarnation=1, global_step=0, reason="trainer lost")),
        decision(4, "update", end_us=5_000_000, without_us=5_000_000, states=1),
        task("t", "update", 4, 7),
        closed(8, 1, incarnation=1),
    )
    answered = only(records)
    assert (answered.id, answered.end_s, answered.actual_s) == (4, 9.0, 7.0)
    found = explain(Trail(records), 1)
    assert found is not None
    assert found.forecast is not None
    assert (found.forecast.num_steps, found.forecast.worst_s, found.forecast.worst_step) == (1, -2.0, 1)
    assert found.forecast.median_share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"strategy": "never", "answer": "wait"}, "it never inserts TAG"),
        ({"strategy": "always", "answer": "tag"}, "UQ is empty"),
        ({"strategy": "static:3", "answer": "tag"}, "its TAG come first, whatever UQ holds"),
        ({"strategy": "static:3", "answer": "wait"}, "its TAG of this global step are done"),
        ({"strategy": "bts", "answer": "update", "ready": 2}, "UQ is not empty"),
        (
            {"strategy": "bts", "answer": "wait", "tags": 2, "end_us": 10, "without_us": 500_010, "states": 9},
            "2 TAG later, not now, end the step 0.500 s sooner",
        ),
        (
            {"strategy": "bts", "answer": "wait", "end_us": 10, "without_us": 10, "states": 50_000, "exhausted": True},
            "no number of TAG ends the step sooner; the search ran out of budget, so this is the answer of planned",
        ),
        ({"answer": "wait"}, "only stale work was left, and making it would move the commit"),
    ],
)
def test_reasons(fields: dict[str, Any], reason: str) -> None:
    at, body = decision(1, **fields)
    assert only(stream((0, r.JobState(state="running")), (at, body))).why == reason
