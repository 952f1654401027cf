"""Rewards to advantages, one group (the samples of one prompt) at a time.

Advantages are normalised on the *full* group; best-of-N selection (`selection.py`) comes after and changes
none of them. A failed reward is None, never a number: its sample is masked (advantage None) and takes no
part in any mean or standard deviation. A group with fewer surviving rewards than its quorum is dropped, and
says so. Sums are exact (`fsum`), so the order in which samples or groups arrive changes no bit.

Sources: GRPO's A = (r - mean) / (std + eps); flow_grpo `stat_tracking.py` and DanceGRPO for the two
conventions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite, sqrt
from typing import Final, Literal

from digend.rl.names import require_known

Std = Literal["group", "global", "none"]
Rewards = Sequence[float | None]

# A spread this small is rounding noise: relative to the largest reward, and where sums cancel to about 0.
_RELATIVE_SPREAD: Final = 1e-8
_ABSOLUTE_SPREAD: Final = 1e-12
# Far below where a square overflows; nan and infinities fail the same comparison.
LARGEST_REWARD: Final = 1e100
"""A reward beyond it, up or down, has failed: sums of its squares would overflow."""


@dataclass(frozen=True, slots=True)
class AdvantageRule:
    """How rewards become advantages; the defaults are flow_grpo's, with the standard deviation of the group.

    `std`: over the "group", over all surviving rewards of the global step ("global"), or "none" (only the
    mean goes). `ddof`: 0 divides the variance by n, 1 by n - 1. `eps` is added to the standard deviation.
    `clip_max` bounds |advantage| (None: no bound). `quorum`: the least fraction of a group's rewards that
    must have survived.
    """

    std: Std = "group"
    ddof: int = 0
    eps: float = 1e-4
    clip_max: float | None = 5.0
    quorum: float = 0.5

    def __post_init__(self) -> None:
        require_known("std", self.std, ("group", "global", "none"))
        if self.ddof not in (0, 1):
            raise ValueError(f"ddof must be 0 or 1, got {self.ddof}")
        if not (isfinite(self.eps) and self.eps >= 0):
            raise ValueError(f"eps must be a finite number >= 0, got {self.eps}")
        if self.clip_max is not None and not self.clip_max > 0:
            raise ValueError(f"clip_max must be > 0 or None, got {self.clip_max}")
        if not 0 <= self.quorum <= 1:
            raise ValueError(f"quorum must be in [0, 1], got {self.quorum}")


CONVENTIONS: Final[Mapping[str, AdvantageRule]] = {
    "flow_grpo": AdvantageRule(ddof=0, eps=1e-4),
    "dance": AdvantageRule(ddof=1, eps=1e-8),
}


def convention(name: str, *, std: Std = "group") -> AdvantageRule:
    """A peer's ddof and eps. Raises ValueError, with the nearest name, for one that is not in CONVENTIONS."""
    require_known("advantage convention", name, CONVENTIONS)
    return replace(CONVENTIONS[name], std=std)


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """The outcome of one group.

    `advantages[i]` is None where sample i is masked, which is everywhere in a dropped group. `mean` and `std`
    are the group's own, also under "global"; None in a dropped group. `zero_std`: the rewards do not differ,
    so all advantages are exactly 0.0. `dropped`: None, or the reason, with the group's name.
    """

    advantages: tuple[float | None, ...]
    mean: float | None
    std: float | None
    zero_std: bool
    dropped: str | None


def normalise_group(
    name: str, rewards: Rewards, rule: AdvantageRule, *, global_std: float | None = None
) -> GroupAdvantages:
    """The advantages of one group, in the order of `rewards`.

    `global_std` comes from `global_std_of` and is needed if, and only if, the rule says "global". Raises
    ValueError otherwise, for a group of fewer than 2 samples, and for a reward that is nan, infinite or
    past 1e100 (make it None where it is read).
    """
    if (global_std is None) == (rule.std == "global"):
        raise ValueError(f"group {name!r}: std = {rule.std!r} with global_std = {global_std}")
    dropped = _drop_reason(name, rewards, rule)
    if dropped is not None:
        return GroupAdvantages((None,) * len(rewards), None, None, zero_std=False, dropped=dropped)
    survivors = _survivors(rewards)
    mean, std = _mean_std(survivors, rule.ddof)
    zero_std = _spread_is_noise(survivors)
    divisor = 1.0 if rule.std == "none" else rule.eps + (std if global_std is None else global_std)

    def advantage(reward: float) -> float:
        return 0.0 if zero_std else _clip((reward - mean) / divisor, rule.clip_max)

    advantages = tuple(None if reward is None else advantage(reward) for reward in rewards)
    return GroupAdvantages(advantages, mean, std, zero_std=zero_std, dropped=None)


def global_std_of(groups: Mapping[str, Rewards], rule: AdvantageRule) -> float:
    """The standard deviation of all surviving rewards of a global step, those of dropped groups left out.

    0.0 when every group is dropped. Raises ValueError as `normalise_group` does.
    """
    kept = [rewards for name, rewards in groups.items() if _drop_reason(name, rewards, rule) is None]
    survivors = [reward for rewards in kept for reward in _survivors(rewards)]
    return _mean_std(survivors, rule.ddof)[1] if survivors else 0.0


def normalise_groups(groups: Mapping[str, Rewards], rule: AdvantageRule) -> dict[str, GroupAdvantages]:
    """All groups of a global step, by name; the one call that serves every `std`."""
    shared = global_std_of(groups, rule) if rule.std == "global" else None
    return {name: normalise_group(name, rewards, rule, global_std=shared) for name, rewards in groups.items()}


def _survivors(rewards: Rewards) -> list[float]:
    return [reward for reward in rewards if reward is not None]


def _drop_reason(name: str, rewards: Rewards, rule: AdvantageRule) -> str | None:
    if len(rewards) < 2:
        raise ValueError(f"group {name!r} has {len(rewards)} sample(s); an advantage needs at least 2 to compare")
    survivors = _survivors(rewards)
    for reward in survivors:
        if not abs(reward) <= LARGEST_REWARD:
            raise ValueError(f"group {name!r} has the reward {reward}; a failed reward must be None")
    if len(survivors) >= 2 and len(survivors) / len(rewards) >= rule.quorum:
        return None
    return (
        f"group {name!r} dropped: {len(survivors)} of {len(rewards)} rewards survived, "
        f"quorum {rule.quorum:g} and at least 2"
    )


def _mean_std(rewards: Sequence[float], ddof: int) -> tuple[float, float]:
    mean = fsum(rewards) / len(rewards)
    return mean, sqrt(fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - ddof))


def _spread_is_noise(rewards: Sequence[float]) -> bool:
    largest = max(abs(reward) for reward in rewards)
    return max(rewards) - min(rewards) <= max(_RELATIVE_SPREAD * largest, _ABSOLUTE_SPREAD)


def _clip(advantage: float, clip_max: float | None) -> float:
    return advantage if clip_max is None else max(-clip_max, min(clip_max, advantage))
