"""Work dealt over ranks: a micro-batch's (sample, timestep) pairs (TSP, paper section 3.2.2), and a rollout's forward
batches. No tensors.

Invariants: every pair is in one pass of one rank; ranks differ by one pair a noise level and expert at most; all ranks
run as many passes as the others, in the same order of noise levels and experts. A rank that has nothing left runs a
pass that weighs nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from digend.engines.forwards import Forward, Pair

ExpertOf = Callable[[Pair], str]


def any_expert(pair: Pair) -> str:
    """Of passes that need no other rank: they may go through several."""
    return ""


def deal(
    planned: Sequence[Forward], rank: int, size: int, largest: int, expert_of: ExpertOf = any_expert
) -> tuple[Forward, ...]:
    """The passes of one rank, of `largest` pairs at most, of those planned for one rank alone."""
    alike: dict[tuple[float, str], list[Pair]] = {}
    for forward in planned:
        for pair in forward.pairs:
            alike.setdefault((forward.level, expert_of(pair)), []).append(pair)
    return tuple(
        replace(forward, expert=expert)
        for (level, expert), pairs in alike.items()
        for forward in _passes(level, pairs, rank, size, largest)
    )


def deal_batches(num_batches: int, rank: int, size: int) -> tuple[tuple[int, bool], ...]:
    """The forward batches of a rollout that a rank draws, by number: in a row, as many as any other rank has. The flag
    is set of one that is drawn for the others to go on only, and then dropped."""
    first, end = rank * num_batches // size, (rank + 1) * num_batches // size
    most = -(-num_batches // size)
    return tuple((first + k, False) if first + k < end else (0, True) for k in range(most))


def _passes(level: float, pairs: Sequence[Pair], rank: int, size: int, largest: int) -> list[Forward]:
    most = -(-len(pairs) // size)
    num_passes = -(-most // largest)
    width = -(-most // num_passes)
    mine = pairs[rank * len(pairs) // size : (rank + 1) * len(pairs) // size]
    passes = []
    for number in range(num_passes):
        part = tuple(mine[number * width : (number + 1) * width])
        passes.append(Forward(level, part) if part else Forward(level, (pairs[0],), padding=True))
    return passes
