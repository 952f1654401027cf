"""Best-of-N: which samples of a group are trained on, chosen after its advantages are known, and what that
adds up to.

Selection reads advantages of the full group and changes none. Masked samples (advantage None) are never
selected. Source: DanceGRPO's video recipe, which keeps the best and the worst; per group here, and with the
halves rounded as meant.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Sample = TypeVar("Sample", bound=Hashable)


def select_best_of_n(advantages: Sequence[float | None], n: int | None) -> tuple[int, ...]:
    """Indices, ascending, of the n samples of one group to train on; all unmasked ones when `n` is None.

    The ceil(n/2) highest advantages and the floor(n/2) lowest; among equals the lower index goes first. A
    group with n or fewer unmasked samples keeps them all. Raises ValueError unless 1 <= n <= the size of
    the group.
    """
    unmasked = [(advantage, at) for at, advantage in enumerate(advantages) if advantage is not None]
    if n is None:
        return tuple(at for _, at in unmasked)
    if not 1 <= n <= len(advantages):
        raise ValueError(f"best-of-N needs 1 <= n <= group size ({len(advantages)}), got n={n}")
    num_low = n // 2
    best_first = sorted(unmasked, key=lambda pair: (-pair[0], pair[1]))
    high, others = best_first[: n - num_low], best_first[n - num_low :]
    low = sorted(others)[:num_low]
    return tuple(sorted(at for _, at in high + low))


def z_count(selection: Iterable[Sample], timesteps: Mapping[Sample, Sequence[int]]) -> int:
    """Z = the sum of |S_i| over the selected samples: the number of (sample, timestep) pairs the loss is
    divided by.

    `selection` names unmasked samples, of all groups of a global step, after best-of-N; those with
    advantage zero count. `timesteps` holds S_i per sample. Raises ValueError for a sample selected twice or
    without timesteps.
    """
    total = 0
    seen: set[Sample] = set()
    for sample in selection:
        if sample in seen or not timesteps.get(sample):
            raise ValueError(f"sample {sample!r} is selected twice or has no timesteps")
        seen.add(sample)
        total += len(timesteps[sample])
    return total
