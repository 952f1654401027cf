"""GAP: how the samples of a micro-batch are shared over the workers of a pool (paper section 3.2.1).

`gap` and `naive` cut through groups, in proportion to measured speed; `batch` gives each whole group to one worker.
Pure arithmetic on positions; a share names (group position, sample positions) so that nothing is copied.
"""

from collections.abc import Mapping, Sequence

Share = tuple[tuple[int, tuple[int, ...]], ...]
"""(position of the group in the micro-batch, positions of its samples), in order."""


def split(partition: str, group_sizes: Sequence[int], speeds: Mapping[str, float], first: int = 0) -> dict[str, Share]:
    """A share for each worker that gets one; together they hold every sample once. `speeds` sum to 1.

    `first`: so many samples from the beginning are left out (`batch` keeps groups whole, so that it cuts the first).
    """
    samples = [(group, sample) for group, size in enumerate(group_sizes) for sample in range(size)][first:]
    if partition == "batch":
        return _whole_groups(_by_group(samples), speeds)
    shares, at = {}, 0
    for name, count in quotas(len(samples), speeds).items():
        if count:
            shares[name] = _by_group(samples[at : at + count])
        at += count
    return shares


def quotas(num: int, speeds: Mapping[str, float]) -> dict[str, int]:
    """Largest remainders: integers in proportion to `speeds` that sum to `num`; ties go to the earlier worker."""
    exact = {name: num * speed for name, speed in speeds.items()}
    counts = {name: int(value) for name, value in exact.items()}
    order = sorted(exact, key=lambda name: (counts[name] - exact[name], list(exact).index(name)))
    for name in order[: num - sum(counts.values())]:
        counts[name] += 1
    return counts


def quantisation_loss(num: int, speeds: Mapping[str, float]) -> float:
    """How much longer the slowest share takes than a perfect one: 0.0 = none (4 samples on speeds 1, 1, .5: .25)."""
    counts = quotas(num, speeds)
    return max(counts[name] / (speed * num) for name, speed in speeds.items() if speed > 0) - 1.0


def whole(group_sizes: Sequence[int]) -> Share:
    """Everything, for one worker."""
    return tuple((group, tuple(range(size))) for group, size in enumerate(group_sizes))


def _whole_groups(groups: Share, speeds: Mapping[str, float]) -> dict[str, Share]:
    load = dict.fromkeys(speeds, 0.0)
    taken: dict[str, list[tuple[int, tuple[int, ...]]]] = {name: [] for name in speeds}
    for group, members in groups:
        size = len(members)
        name = min(load, key=lambda worker: ((load[worker] + size) / speeds[worker], list(load).index(worker)))
        load[name] += size
        taken[name].append((group, members))
    return {name: tuple(share) for name, share in taken.items() if share}


def _by_group(samples: Sequence[tuple[int, int]]) -> Share:
    grouped: dict[int, list[int]] = {}
    for group, sample in samples:
        grouped.setdefault(group, []).append(sample)
    return tuple((group, tuple(members)) for group, members in grouped.items())
