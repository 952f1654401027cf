"""What a global step is made of: every sample once, in any order; masks, drops and selection; Z0 and Z; the barrier."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import pytest

from broker.commands import SendTask
from broker.events import CancelRequested, DrainRequested, Event, PauseRequested, ResumeRequested, TaskFinished
from broker.harness import Simulation
from broker.harness_engine import Sample, Scorer, honest
from broker.harness_times import Load, Times
from broker.views import job_view
from digend.rl.advantages import AdvantageRule, global_std_of, normalise_group
from digend.rl.selection import select_best_of_n
from digend.wire.records import EvaluationRecord, Notice, StepRecord
from digend.wire.tasks import CommitTask, SampleScore, ScoreTask, TaskBody, UpdateTask
from tests.broker.audit import audit, planned_pairs, steps_of, trained_pairs
from tests.broker.support import (
    MS,
    RULES,
    TIMES,
    TRAINER,
    S,
    bodies,
    evaluation,
    finished,
    job,
    last_state,
    prompts,
    simulate,
    slots,
)


def sent(simulation: Simulation, kind: type) -> list[SendTask]:
    """The tasks of one kind, in the order they were sent."""
    return [
        command
        for batch in simulation.batches
        for command in batch.commands
        if isinstance(command, SendTask) and isinstance(command.task, kind)
    ]


@pytest.mark.parametrize("strategy", ["never", "always", "static:2"])
@pytest.mark.parametrize("partition", ["gap", "batch", "naive"])
def test_a_step_trains_on_its_samples_once(partition: str, strategy: str) -> None:
    spec = job(partition=partition, strategy=strategy, micro_batch_groups=2 if partition == "batch" else 1)
    simulation = finished(spec, 3)
    audit(simulation, spec)
    assert [trained_pairs(step) for step in steps_of(simulation, spec)] == [planned_pairs(spec, at) for at in range(2)]
    assert [step.version for step in bodies(simulation, StepRecord)] == [1, 2]


def test_any_order_of_arrival_with_repeats_gives_the_same_steps() -> None:
    """Advantages are exact sums, so not a bit of any depends on the order."""
    spec = job(prompts=prompts(6), prompts_per_rollout=6)
    expected = {pair for step in steps_of(finished(spec, 2), spec) for pair in step.pairs}
    for seed in range(40):
        rng = Random(seed)

        def courier(now_ns: int, event: Event, rng: Random = rng) -> Iterable[tuple[int, Event]]:
            late_ns = rng.randrange(3000) * MS
            yield now_ns + late_ns, event
            if isinstance(event, TaskFinished) and rng.random() < 0.3:
                yield now_ns + late_ns + rng.randrange(2000) * MS, event

        simulation = finished(spec, 2, courier=courier)
        audit(simulation, spec, retold=True)
        assert {pair for step in steps_of(simulation, spec) for pair in step.pairs} == expected


def test_commit_names_exactly_what_was_applied() -> None:
    spec = job(partition="batch", micro_batch_groups=2, num_global_steps=1)
    simulation = finished(spec, 2)
    (commit,) = sent(simulation, CommitTask)
    updates = [order.task for order in sent(simulation, UpdateTask)]
    assert isinstance(commit.task, CommitTask)
    assert sorted(commit.task.micro_batches) == sorted(
        task.micro_batch for task in updates if isinstance(task, UpdateTask)
    )
    assert commit.task.z == commit.task.z0 == 4 * 4 * 2


def masking(doomed: dict[str, set[int]]) -> Scorer:
    """A reward that fails for ever for some samples (of prompt uid)."""

    def scorer(sample: Sample) -> SampleScore:
        if sample.index in doomed.get(sample.prompt, set()):
            return SampleScore(prompt=sample.prompt, index=sample.index, reward=None, components={}, failure="broken")
        return honest(sample)

    return scorer


def test_masked_samples_and_dropped_groups_shrink_z_not_z0() -> None:
    spec = job(num_global_steps=1)
    simulation = finished(spec, 2, scorer=masking({"p1": {0}, "p2": {0, 1, 2}}))
    audit(simulation, spec, masked=True)
    (step,) = steps_of(simulation, spec)
    assert step.z0 == 4 * 4 * 2
    assert step.z == (4 + 3 + 0 + 4) * 2
    (record,) = bodies(simulation, StepRecord)
    assert (record.z0, record.z) == (step.z0, step.z)
    assert (record.num_masked, record.num_dropped_groups, record.num_selected) == (4, 1, 11)
    said = [notice.message for notice in bodies(simulation, Notice)]
    assert any("p1/0: broken" in message for message in said)
    assert any("'p2' dropped: 1 of 4" in message for message in said)
    assert not [pair for pair in step.pairs if pair.prompt == "p2"]


@pytest.mark.parametrize("best_of_n", [2, 3])
def test_best_of_n_plans_for_its_selection(best_of_n: int) -> None:
    spec = job(rules=replace(RULES, best_of_n=best_of_n), num_global_steps=1)
    simulation = finished(spec, 2)
    audit(simulation, spec)
    (step,) = steps_of(simulation, spec)
    assert step.z0 == step.z == 4 * best_of_n * 2
    (record,) = bodies(simulation, StepRecord)
    assert (record.z0, record.z, record.num_selected) == (step.z0, step.z, 4 * best_of_n)
    for prompt in spec.prompts:
        rewards = [reward_of(prompt.uid, index) for index in range(4)]
        advantages = normalise_group(prompt.uid, rewards, AdvantageRule()).advantages
        chosen = {pair.index for pair in step.pairs if pair.prompt == prompt.uid}
        assert chosen == set(select_best_of_n(advantages, best_of_n))


def reward_of(prompt: str, index: int) -> float:
    score = honest(Sample(job="j1", purpose="train", rollout=0, prompt=prompt, index=index, attempt=0))
    assert score.reward is not None
    return score.reward


def test_zero_advantages_count_in_z() -> None:
    """A group whose rewards are equal has nothing to teach, and is divided by all the same."""

    def scorer(sample: Sample) -> SampleScore:
        score = honest(sample)
        return replace(score, reward=0.5) if sample.prompt == "p0" else score

    spec = job(num_global_steps=1)
    simulation = finished(spec, 2, scorer=scorer)
    (step,) = steps_of(simulation, spec)
    assert step.z == step.z0
    assert {pair.advantage for pair in step.pairs if pair.prompt == "p0"} == {0.0}
    assert bodies(simulation, StepRecord)[0].num_zero_std_groups == 1


@pytest.mark.parametrize(
    ("flat", "warned_at"),
    [((True, True, True), [2]), ((True, False, True), []), ((False, True, True, True), [3])],
    ids=["always", "not in a row", "later, and once"],
)
@pytest.mark.parametrize("level", [0.5, None], ids=["constant", "by prompt"])
def test_rewards_that_never_differ_are_warned_of_once(
    flat: tuple[bool, ...], warned_at: list[int], level: float | None
) -> None:
    def scorer(sample: Sample) -> SampleScore:
        same = level if level is not None else reward_of(sample.prompt, 0)
        return replace(honest(sample), reward=same) if flat[sample.rollout] else honest(sample)

    simulation = finished(job(num_global_steps=len(flat)), 2, scorer=scorer)
    said = [body.message for body in bodies(simulation, Notice) if "nothing is learnt" in body.message]
    closed, warned = 0, []
    for record in simulation.records["j1"]:
        closed += isinstance(record.body, StepRecord)
        if isinstance(record.body, Notice) and record.body.message in said:
            warned.append(closed)
    assert warned == warned_at
    for message in said:
        what = "the reward was 0.5 for every sample" if level else "samples of a prompt had one reward"
        assert f"in 2 global steps in a row {what}. " in message
        assert "docs/write-a-reward.md" in message


def everything_of(rollouts: set[int]) -> Scorer:
    def scorer(sample: Sample) -> SampleScore:
        if sample.rollout in rollouts:
            return SampleScore(prompt=sample.prompt, index=sample.index, reward=None, components={}, failure="down")
        return honest(sample)

    return scorer


def test_a_step_without_survivors_closes_without_a_version() -> None:
    spec = job(num_global_steps=3)
    simulation = finished(spec, 2, scorer=everything_of({1}))
    audit(simulation, spec, masked=True)
    records = bodies(simulation, StepRecord)
    assert [record.version for record in records] == [1, 1, 2]
    assert [bool(record.skipped) for record in records] == [False, True, False]
    assert (records[1].z, records[1].z0) == (0, 32)
    assert [step.global_step for step in steps_of(simulation, spec)] == [0, 2], "nothing was asked of the trainer"
    assert last_state(simulation) == ("completed", "2 of 3 global steps trained")
    assert records[1].skipped == "no sample survived scoring (16 of 16 masked: down)"


NOTHING_TRAINED = "no global step trained: no sample survived scoring (16 of 16 masked: down)"


@pytest.mark.parametrize("max_skipped", [3, 2], ids=["too few to be held", "would be held"])
def test_a_job_without_any_update_fails(max_skipped: int) -> None:
    spec = job(num_global_steps=2, max_skipped_steps=max_skipped, evaluation=evaluation(1))
    simulation = finished(spec, 2, scorer=everything_of({0, 1}))
    assert last_state(simulation) == ("failed", NOTHING_TRAINED)
    assert [body.label for body in bodies(simulation, EvaluationRecord)] == ["before"]
    audit(simulation, spec, masked=True)


def test_so_does_one_that_was_paused_and_resumed() -> None:
    spec = job(num_global_steps=2, checkpoint_every=0)
    simulation = simulate(spec, 2, scorer=everything_of({0, 1}))
    simulation.run(until=lambda: simulation.now_ns > 2 * S)
    simulation.ask(PauseRequested(job="j1"))
    simulation.run(until=lambda: simulation.job("j1").state == "paused", limit_ns=500 * S)
    assert simulation.job("j1").global_step == 1
    simulation.ask(ResumeRequested(job="j1"))
    simulation.run(limit_ns=1000 * S)
    assert last_state(simulation) == ("failed", NOTHING_TRAINED)


def test_too_many_skipped_steps_in_a_row_fail_the_job() -> None:
    spec = job(num_global_steps=5, max_skipped_steps=2, on_skipped="fail")
    simulation = finished(spec, 2, scorer=everything_of({1, 2}))
    state, reason = last_state(simulation)
    assert state == "failed"
    assert "2 global steps in a row were skipped: no sample survived scoring" in reason
    audit(simulation, spec, masked=True)


def held() -> Simulation:
    """Global steps 2 and 3 are skipped, after which it is held."""
    spec = job(num_global_steps=5, max_skipped_steps=2)
    simulation = simulate(spec, 2, scorer=everything_of({1, 2}))
    simulation.run(until=lambda: "j1" in simulation.core.state.jobs and simulation.job("j1").state == "held")
    return simulation


def test_or_hold_it_until_somebody_lets_it_go_on() -> None:
    simulation = held()
    simulation.run(until=lambda: simulation.now_ns > 300 * S)
    why = "2 global steps in a row were skipped: no sample survived scoring (16 of 16 masked: down)"
    assert last_state(simulation) == ("held", f"{why}; digenctl resume j1 lets it go on")
    assert simulation.job("j1").global_step == 3
    assert not simulation.core.state.leases
    simulation.ask(ResumeRequested(job="j1"))
    simulation.run(limit_ns=1000 * S)
    simulation.settle()
    assert last_state(simulation) == ("completed", "3 of 5 global steps trained")
    assert [bool(record.skipped) for record in bodies(simulation, StepRecord)] == [False, True, True, False, False]
    assert simulation.replay() is None


def test_held_it_stays_so_when_its_trainer_is_lost_and_can_be_paused_and_cancelled() -> None:
    simulation = held()
    simulation.kill(TRAINER, S)
    simulation.run(until=lambda: simulation.now_ns > 100 * S)
    assert last_state(simulation)[0] == "held"
    simulation.ask(PauseRequested(job="j1"))
    simulation.run(until=lambda: simulation.job("j1").state == "paused", limit_ns=200 * S)
    simulation.ask(ResumeRequested(job="j1"))
    simulation.run(until=lambda: simulation.job("j1").state == "running", limit_ns=300 * S)
    other = held()
    other.ask(CancelRequested(job="j1"))
    other.run(limit_ns=500 * S)
    assert last_state(other)[0] == "cancelled"


def test_why_it_is_held_is_told_first_and_to_those_that_wait_for_its_workers() -> None:
    simulation = held()
    why = simulation.job("j1").hold
    simulation.submit(job(id="j2"))
    simulation.run(until=lambda: "j2" in simulation.core.state.jobs, limit_ns=simulation.now_ns + 10 * S)
    assert last_state(simulation, "j2") == ("queued", "waits for n: j1 is held there; resume or cancel it")
    for index in range(2):
        simulation.ask(DrainRequested(target=f"n/generator/{index}", by="ann", why="new kernel"))
    simulation.run(until=lambda: len(simulation.core.state.drains) == 2, limit_ns=simulation.now_ns + 10 * S)
    reason = job_view(simulation.core.state, simulation.job("j1")).reason
    assert reason.startswith(f"{why}; waits: no generator: n/generator/0 is drained by ann: new kernel")


def test_skipped_steps_that_are_not_in_a_row_do_not() -> None:
    spec = job(num_global_steps=4, max_skipped_steps=2)
    assert last_state(finished(spec, 2, scorer=everything_of({0, 2})))[0] == "completed"


@pytest.mark.parametrize("lost", [False, True], ids=["", "made again"])
def test_global_std_is_a_barrier_and_one_number_a_step(lost: bool) -> None:
    """Nothing is updated before all is scored, and what is made again later is divided by the same."""
    spec = job(rules=replace(RULES, std="global"), num_global_steps=1, prompts=prompts(3), prompts_per_rollout=3)
    simulation = Simulation(TIMES, slots(2))
    simulation.submit(spec)
    simulation.run(until=lambda: bool(sent(simulation, UpdateTask)))
    assert all(batch.scored for batch in simulation.job("j1").rollout)
    if lost:
        simulation.kill("n/generator/0", 1000 * MS)
    simulation.run(limit_ns=10**12)
    audit(simulation, spec)
    rule = AdvantageRule(std="global")
    rewards = {prompt.uid: [reward_of(prompt.uid, index) for index in range(4)] for prompt in spec.prompts}
    shared = global_std_of(rewards, rule)
    expected = {
        (uid, index): advantage
        for uid, group in rewards.items()
        for index, advantage in enumerate(normalise_group(uid, group, rule, global_std=shared).advantages)
    }
    (step,) = steps_of(simulation, spec)
    assert {(pair.prompt, pair.index): pair.advantage for pair in step.pairs} == expected


def updates_in_order(simulation: Simulation) -> list[tuple[int, int]]:
    return [
        (order.task.global_step, order.task.micro_batch)
        for order in sent(simulation, UpdateTask)
        if isinstance(order.task, UpdateTask)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFirst(Times):
    """Scoring takes long for the first micro-batch."""

    def task_ns(self, task: TaskBody, load: Load) -> int:
        if isinstance(task, ScoreTask) and task.micro_batch == 0:
            return 4000 * MS
        return Times.task_ns(self, task, load)


def test_deterministic_updates_go_by_index_and_others_by_arrival() -> None:
    times = SlowFirst(generate=800 * MS, update=500 * MS, score=100 * MS)
    spec = job(num_global_steps=1, scoring="dedicated")
    assert updates_in_order(finished(spec, 2, 4, times=times)) == [(0, 1), (0, 2), (0, 3), (0, 0)]
    fixed = replace(spec, deterministic=True)
    assert updates_in_order(finished(fixed, 2, 4, times=times)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("aggregation", ["advantage_aggr", "normalised_aggr"])
def test_each_reward_is_normalised_by_itself(aggregation: Literal["advantage_aggr", "normalised_aggr"]) -> None:
    """The one with a spread a thousand times larger does not decide alone."""

    def scorer(sample: Sample) -> SampleScore:
        parts = {"large": 1000.0 * sample.index, "small": -2.0 * sample.index}
        return SampleScore(
            prompt=sample.prompt, index=sample.index, reward=parts["large"] + 2 * parts["small"], components=parts
        )

    spec = job(num_global_steps=1, aggregation=aggregation, reward_weights=(("large", 1.0), ("small", 2.0)))
    simulation = finished(spec, 2, scorer=scorer)
    tasks = [order.task for order in sent(simulation, UpdateTask)]
    for task in tasks:
        assert isinstance(task, UpdateTask)
        advantages = {item.index: item.advantage for item in task.items}
        assert sorted(advantages, key=lambda index: advantages[index]) == [3, 2, 1, 0]
    (step,) = bodies(simulation, StepRecord)
    assert step.reward_mean == pytest.approx(1500 - 6)


def test_advantages_of_each_reward_do_not_go_with_a_barrier() -> None:
    with pytest.raises(ValueError, match="aggregation = advantage_aggr"):
        job(aggregation="advantage_aggr", rules=replace(RULES, std="global"))
