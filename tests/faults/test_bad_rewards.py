"""A reward that fails is a status, never a number: samples are masked, groups under quorum dropped, and both named."""

import pytest

from digend.exitcodes import ExitCode
from tests.e2e.cluster import JOB, Cluster
from tests.e2e.run import Run, assert_counted_once

SOURCE = '''
"""Rewards that go wrong, for whole batches or for some prompts only."""

import math


def raises(pixels, prompts, metadata):
    raise RuntimeError("the scorer's server is down")


def short(pixels, prompts, metadata):
    return [0.5] * (len(prompts) - 1)


def text(pixels, prompts, metadata):
    return "0.5"


def nan(pixels, prompts, metadata):
    return [math.nan] * len(prompts)


def none(pixels, prompts, metadata):
    return [None] * len(prompts)


def bright(pixels, prompts, metadata):
    return pixels.mean(axis=(1, 2, 3)).tolist()


def no_circles(pixels, prompts, metadata):
    values = bright(pixels, prompts, metadata)
    return [math.nan if "circle" in prompt else value for prompt, value in zip(prompts, values)]


def not_dark(pixels, prompts, metadata):
    values = bright(pixels, prompts, metadata)
    return [math.nan if value == min(values) else value for value in values]
'''
BRIEF = (
    "eval.enabled=false",
    "training.max_skipped_steps=2",
    "training.on_skipped=fail",
    "schedule.reward_retries=0",
    "checkpoint.every=0",
)

ALGORITHMS = {"flow_grpo": (), "diffusion_nft": ("algorithm.name=diffusion_nft", "algorithm.options={}")}


@pytest.fixture
def rewards(healthy: Cluster) -> Cluster:
    (healthy.folder / "rewards" / "bad.py").write_text(SOURCE)
    return healthy


def reward(function: str) -> tuple[str, ...]:
    return (*BRIEF, f"rewards[0].name=bad.py:{function}")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "raised RuntimeError: the scorer's server is down"),
        ("short", "values for"),
        ("text", "returned a str"),
        ("nan", "gave nan"),
        ("none", "gave no value"),
    ],
)
def test_a_reward_that_never_works_fails_the_job_after_some_skipped_steps(
    rewards: Cluster, function: str, said: str
) -> None:
    rewards.submit(f"reward-{function}", *reward(function))
    run = rewards.over(f"reward-{function}", "failed")
    assert [step.version for step in run.steps] == [0, 0]
    for step in run.steps:
        assert (step.skipped or "").startswith("no sample survived scoring (8 of 8 masked: ")
        assert said in (step.skipped or "")
    assert "2 global steps in a row were skipped: no sample survived" in run.summary["job"]["reason"]
    assert said in run.notices()
    assert run.counters["masked_samples"] == run.counters["samples"] == 16
    assert run.counters["dropped_groups"] == 4
    assert run.steps[-1].num_selected == 0
    assert "reward/mean" not in run.summary["last_step"]


def test_samples_that_cannot_be_scored_are_masked(rewards: Cluster) -> None:
    run = rewards.run("reward-not-dark", *reward("not_dark"), "training.global_steps=2")
    assert_counted_once(run, 2)
    for step in run.steps:
        assert 0 < step.num_masked < step.num_samples
        assert step.num_selected == step.num_samples - step.num_masked
        assert step.z == 2 * step.num_selected < step.z0 == 2 * 8
        assert step.num_dropped_groups == 0


@pytest.mark.parametrize("algorithm", ["flow_grpo", pytest.param("diffusion_nft", marks=pytest.mark.matrix)])
def test_groups_under_their_quorum_are_dropped_and_named(rewards: Cluster, algorithm: str) -> None:
    run = rewards.run(f"no-circles-{algorithm}", *reward("no_circles"), *ALGORITHMS[algorithm])
    dropped = [step for step in run.steps if step.num_dropped_groups]
    assert dropped, "no circle was drawn"
    assert len(dropped) < 4
    for step in dropped:
        assert (step.num_dropped_groups, step.num_masked, step.num_selected) == (1, 4, 4)
        assert step.skipped is None
    assert "quorum" in run.notices()


def test_the_same_with_a_dedicated_reward_process(rewards: Cluster) -> None:
    run = rewards.run("reward-dedicated", *reward("no_circles"), "schedule.scoring=dedicated")
    assert run.counters["dropped_groups"] >= 1


def test_a_file_outside_the_allowed_folders(rewards: Cluster) -> None:
    outside = rewards.folder / "outside.py"
    outside.write_text(SOURCE)
    for number, name in enumerate((str(outside), "../outside.py")):
        rewards.submit(f"outside-{number}", *BRIEF, f"rewards[0].name={name}:bright")
        reason = reason_of(rewards.over(f"outside-{number}", "failed"))
        assert f"{outside} is outside the folders of reward_paths" in reason
    rewards.submit("no-such-function", *BRIEF, "rewards[0].name=bad.py:absent")
    assert "has no function 'absent'" in reason_of(rewards.over("no-such-function", "failed"))


def test_an_unknown_reward_is_refused_at_once(rewards: Cluster) -> None:
    done = rewards.ctl("submit", str(JOB), "--set", "rewards[0].name=shapes_bot", code=ExitCode.BAD_CONFIG)
    assert "did you mean shapes_both" in done.stderr


def reason_of(run: Run) -> str:
    reason: str = run.summary["job"]["reason"]
    return reason
