"""Several rewards of a sample as one advantage, in three ways. Pure arithmetic on one group at a time.

`reward_aggr`: the advantage of the weighted sum of rewards. `advantage_aggr`: the weighted sum of each reward's own
advantages, so that a reward of large spread does not drown the others (both as MixGRPO names them). `normalised_aggr`:
each reward normalised in its group, their weighted sum taken for a reward, and normalised again, so that the
advantages have the usual size whatever the number of rewards.

Invariant: a sample that lacks any of its rewards is masked in all three.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Final, Literal

from digend.rl.advantages import LARGEST_REWARD, AdvantageRule, GroupAdvantages, Rewards, normalise_group

Aggregation = Literal["reward_aggr", "advantage_aggr", "normalised_aggr"]
AGGREGATIONS: Final = ("reward_aggr", "advantage_aggr", "normalised_aggr")


def normalised_sum(
    name: str, parts: Mapping[str, Rewards], weights: Mapping[str, float], rule: AdvantageRule
) -> Rewards:
    """Weighted sum of each part's advantages in the group, not clipped; None where a sample is masked.

    `parts`: rewards of each weighted reward, in the order of the group's samples. A group under its quorum keeps the
    number of its survivors, so that it is dropped by whoever normalises it.
    """
    own = replace(rule, std="none" if rule.std == "none" else "group", clip_max=None, quorum=0.0)
    masked = [any(map(_failed, sample)) for sample in zip(*parts.values(), strict=True)]
    if sum(not each for each in masked) < 2:
        return [None if each else 0.0 for each in masked]
    advantages = {
        label: normalise_group(
            name, [None if gone else value for gone, value in zip(masked, values, strict=True)], own
        ).advantages
        for label, values in parts.items()
    }
    sums = [fsum(weights[label] * (each[at] or 0.0) for label, each in advantages.items()) for at in range(len(masked))]
    return [None if gone or _failed(each) else each for gone, each in zip(masked, sums, strict=True)]


def _failed(value: float | None) -> bool:
    return value is None or not abs(value) <= LARGEST_REWARD


def aggregated_advantages(name: str, summed: Rewards, rule: AdvantageRule) -> GroupAdvantages:
    """`advantage_aggr`: what `normalised_sum` gave is the advantage, but for the clip and the quorum."""
    checked = normalise_group(name, summed, replace(rule, std="none"))
    if checked.dropped:
        return checked
    return replace(checked, advantages=tuple(_clipped(summed, rule.clip_max)))


def _clipped(advantages: Rewards, clip_max: float | None) -> Sequence[float | None]:
    if clip_max is None:
        return list(advantages)
    return [None if each is None else max(-clip_max, min(clip_max, each)) for each in advantages]
