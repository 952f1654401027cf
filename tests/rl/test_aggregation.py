"""Several rewards as one advantage: by hand-worked groups, masks and clips."""

from statistics import fmean, pstdev

import pytest

from digend.rl.advantages import AdvantageRule, normalise_group
from digend.rl.aggregation import aggregated_advantages, normalised_sum

RULE = AdvantageRule(eps=0.0, clip_max=None)
PARTS = {"large": [100.0, 300.0, 200.0, 400.0], "small": [0.4, 0.1, 0.3, 0.2]}
WEIGHTS = {"large": 1.0, "small": 2.0}


def z(values: list[float]) -> list[float]:
    return [(value - fmean(values)) / pstdev(values) for value in values]


def test_the_sum_of_advantages() -> None:
    expected = [one + 2 * other for one, other in zip(z(PARTS["large"]), z(PARTS["small"]), strict=True)]
    summed = normalised_sum("p", PARTS, WEIGHTS, RULE)
    assert summed == pytest.approx(expected, abs=1e-12)
    group = aggregated_advantages("p", summed, RULE)
    assert group.advantages == pytest.approx(expected, abs=1e-12)
    assert not group.zero_std
    again = normalise_group("p", summed, RULE).advantages
    assert [each for each in again if each is not None] == pytest.approx(z(expected), abs=1e-12)


def test_a_reward_of_large_spread_drowns_the_others_only_in_the_plain_sum() -> None:
    plain = [one + 2 * other for one, other in zip(*PARTS.values(), strict=True)]
    assert z(plain) == pytest.approx(z(PARTS["large"]), abs=0.01)
    summed = [value for value in normalised_sum("p", PARTS, WEIGHTS, RULE) if value is not None]
    assert summed.index(max(summed)) == 0


def test_a_sample_that_lacks_one_reward_is_masked_in_all() -> None:
    parts: dict[str, list[float | None]] = {"large": [100.0, None, 200.0, 400.0], "small": [0.4, 0.1, 0.3, 0.2]}
    summed = normalised_sum("p", parts, WEIGHTS, RULE)
    kept = [one + 2 * other for one, other in zip(z([100, 200, 400]), z([0.4, 0.3, 0.2]), strict=True)]
    assert summed[1] is None
    assert [each for each in summed if each is not None] == pytest.approx(kept, abs=1e-12)
    assert aggregated_advantages("p", summed, RULE).advantages[1] is None


def test_groups_under_their_quorum_are_dropped() -> None:
    parts: dict[str, list[float | None]] = {"large": [100.0, None, None, None], "small": [0.4, 0.1, 0.3, 0.2]}
    group = aggregated_advantages("p", normalised_sum("p", parts, WEIGHTS, RULE), RULE)
    assert group.dropped is not None
    assert group.advantages == (None,) * 4


def test_the_clip_is_of_the_sum_and_a_flat_reward_says_nothing() -> None:
    parts = {"large": [0.0, 0.0, 0.0, 1.0], "flat": [0.5] * 4}
    summed = normalised_sum("p", parts, {"large": 1.0, "flat": 9.0}, RULE)
    assert summed == pytest.approx(z(parts["large"]), abs=1e-12)
    clipped = aggregated_advantages("p", summed, AdvantageRule(eps=0.0, clip_max=1.0)).advantages
    assert clipped[3] == 1.0
    assert clipped[0] == pytest.approx(z(parts["large"])[0], abs=1e-12)


def test_what_is_too_large_to_square_is_masked() -> None:
    parts: dict[str, list[float | None]] = {"large": [1e200, 1.0, 2.0, 4.0], "small": [0.4, 0.1, 0.3, 0.2]}
    summed = normalised_sum("p", parts, WEIGHTS, RULE)
    assert [each is None for each in summed] == [True, False, False, False]
    own = AdvantageRule(std="none", eps=1.0)
    far = normalised_sum("p", {"large": [0.0, 1e99, 0.0, 0.0]}, {"large": 1e6}, own)
    assert far[1] is None
