from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.rl.advantages import (
    AdvantageRule,
    convention,
    global_std_of,
    normalise_group,
    normalise_groups,
)

FLOW_GRPO, DANCE = convention("flow_grpo"), convention("dance")
TWO_GROUPS = {"a": (1.0, 3.0), "b": (0.0, 2.0)}
REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=12)
RULES = st.sampled_from([FLOW_GRPO, DANCE, replace(FLOW_GRPO, std="none"), replace(DANCE, std="global")])


def advantages_of(rewards: list[float | None], rule: AdvantageRule) -> tuple[float | None, ...]:
    return normalise_groups({"g": rewards}, rule)["g"].advantages


@pytest.mark.parametrize(
    ("rule", "size"),
    [(FLOW_GRPO, 0.99990001), (convention("flow_grpo", std="global"), 0.8943472), (DANCE, 0.70710678)],
)
def test_the_peers_values(rule: AdvantageRule, size: float) -> None:
    for outcome in normalise_groups(TWO_GROUPS, rule).values():
        assert outcome.advantages == pytest.approx((-size, size), abs=5e-9 if size < 0.8 else 6e-8)
        assert not outcome.zero_std


def test_a_global_std_is_over_samples_not_over_their_timesteps() -> None:
    """With n - 1: 1.29099 of (1, 3, 0, 2), however many timesteps each trains; 1.16775 of three copies of each."""
    rule = convention("dance", std="global")
    assert global_std_of(TWO_GROUPS, rule) == pytest.approx(1.29099, abs=5e-6)
    copies = {name: rewards * 3 for name, rewards in TWO_GROUPS.items()}
    assert global_std_of(copies, rule) == pytest.approx(1.16775, abs=5e-6)


def test_group_statistics_are_reported() -> None:
    outcome = normalise_group("a", (1.0, 3.0, None), FLOW_GRPO)
    assert (outcome.mean, outcome.std, outcome.dropped) == (2.0, 1.0, None)


def test_no_std_keeps_the_scale_of_the_rewards() -> None:
    assert advantages_of([1.0, 3.0], AdvantageRule(std="none")) == (-1.0, 1.0)


@pytest.mark.parametrize(
    "rewards",
    [
        [0.1 + 0.2, 0.3, 0.3],
        [0.0, 0.0],
        [5.0, 5.0, 5.0],
        [0.1 + 0.2 - 0.3, 0.0],
        [1e6, 1e6 + 1e-7],
        [-2.0, -2.0, None],
    ],
)
@pytest.mark.parametrize("rule", [FLOW_GRPO, DANCE, replace(DANCE, eps=0.0), replace(FLOW_GRPO, std="none")])
def test_rewards_equal_but_for_rounding_give_exact_zeros(rewards: list[float | None], rule: AdvantageRule) -> None:
    outcome = normalise_group("g", rewards, rule)
    assert outcome.zero_std
    assert outcome.advantages == tuple(None if reward is None else 0.0 for reward in rewards)


def test_small_rewards_that_differ_are_not_zero_std() -> None:
    outcome = normalise_group("g", (1e-9, 3e-9), DANCE)
    assert not outcome.zero_std
    assert outcome.advantages[1] == pytest.approx(1e-9 / (2**0.5 * 1e-9 + 1e-8))


@given(REWARDS, RULES)
def test_advantages_have_mean_zero_without_the_clamp(rewards: list[float], rule: AdvantageRule) -> None:
    values = [value for value in advantages_of([*rewards], replace(rule, clip_max=None)) if value is not None]
    assert len(values) == len(rewards)
    assert sum(values) == pytest.approx(0.0, abs=1e-6 * max(1.0, *map(abs, values)))


@given(REWARDS, RULES, st.randoms(use_true_random=False))
def test_order_of_arrival_changes_no_bit(rewards: list[float], rule: AdvantageRule, shuffle: Random) -> None:
    order = list(range(len(rewards)))
    shuffle.shuffle(order)
    direct = advantages_of([*rewards], rule)
    shuffled = advantages_of([rewards[at] for at in order], rule)
    assert [direct[at] for at in order] == list(shuffled)


@given(st.lists(REWARDS, min_size=1, max_size=4))
def test_order_of_groups_changes_no_bit(groups: list[list[float]]) -> None:
    rule = convention("flow_grpo", std="global")
    named = {str(at): rewards for at, rewards in enumerate(groups)}
    backward = {name: named[name] for name in reversed(named)}
    assert normalise_groups(named, rule) == normalise_groups(backward, rule)


def test_advantages_are_clamped() -> None:
    rewards: list[float | None] = [*[0.0] * 99, 1.0]
    assert advantages_of(rewards, FLOW_GRPO)[-1] == 5.0
    assert advantages_of(rewards, replace(FLOW_GRPO, clip_max=None))[-1] == pytest.approx(9.94, abs=0.01)
    assert advantages_of([-1.0, *rewards[:-1]], FLOW_GRPO)[0] == -5.0


def test_a_failed_reward_is_masked_and_changes_no_statistic() -> None:
    assert advantages_of([1.0, None, 3.0], FLOW_GRPO) == (
        advantages_of([1.0, 3.0], FLOW_GRPO)[0],
        None,
        advantages_of([1.0, 3.0], FLOW_GRPO)[1],
    )


@pytest.mark.parametrize(
    ("rewards", "quorum"),
    [([1.0, None, None], 0.5), ([None, None], 0.0), ([1.0, None], 0.5), ([1.0, 2.0, None], 0.7)],
)
def test_a_group_below_its_quorum_is_dropped_and_named(rewards: list[float | None], quorum: float) -> None:
    outcome = normalise_group("prompt-7", rewards, replace(FLOW_GRPO, quorum=quorum))
    assert outcome.advantages == (None,) * len(rewards)
    assert outcome.dropped is not None
    assert "'prompt-7' dropped" in outcome.dropped
    assert (outcome.mean, outcome.std, outcome.zero_std) == (None, None, False)


def test_a_quorum_is_met_exactly() -> None:
    # .28 * 25 is 7.000000000000001
    rewards: list[float | None] = [float(at) if at < 7 else None for at in range(25)]
    assert normalise_group("g", rewards, replace(FLOW_GRPO, quorum=0.28)).dropped is None


def test_the_global_std_leaves_out_dropped_groups() -> None:
    rule = convention("flow_grpo", std="global")
    with_dropped = {**TWO_GROUPS, "c": (1000.0, None, None)}
    assert global_std_of(with_dropped, rule) == global_std_of(TWO_GROUPS, rule) == pytest.approx(1.11803, abs=5e-6)
    assert global_std_of({"c": (1.0, None, None)}, rule) == 0.0


@pytest.mark.parametrize("rewards", [(), (1.0,)])
def test_a_singleton_group_is_refused(rewards: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"group 'g' has [01] sample"):
        normalise_group("g", rewards, FLOW_GRPO)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e200])
def test_rewards_that_are_no_numbers_must_be_none(bad: float) -> None:
    with pytest.raises(ValueError, match="must be None"):
        normalise_group("g", (1.0, bad), FLOW_GRPO)


def test_a_global_std_goes_with_its_rule() -> None:
    with pytest.raises(ValueError, match="global_std = None"):
        normalise_group("g", (1.0, 2.0), convention("dance", std="global"))
    with pytest.raises(ValueError, match=r"global_std = 1\.0"):
        normalise_group("g", (1.0, 2.0), DANCE, global_std=1.0)


@pytest.mark.parametrize("change", [{"std": "groups"}, {"ddof": 2}, {"eps": -1.0}, {"clip_max": 0.0}, {"quorum": 1.5}])
def test_a_bad_rule_names_its_field(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(FLOW_GRPO, **change)  # type: ignore[arg-type]


def test_unknown_convention_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'flow_grpo'"):
        convention("flowgrpo")
