"""How a micro-batch's (sample, timestep) pairs are dealt into forward passes: TSP, timestep batching. No tensors.

A forward pass holds up to `update_batch` samples and up to `timestep_width` timesteps of each (paper section 3.2.2);
width 1 is the sequential reference, 0 means all. Pairs of one pass may be at different timesteps, not at different
noise levels. Invariant: every pair is in exactly one pass, in an order that depends on the task alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from digend.wire.tasks import UpdateItem


@dataclass(frozen=True, slots=True)
class Pair:
    """Sample `item` of the task at denoising timestep `index`; `position` is its place in the sample's S_i."""

    item: int
    position: int
    index: int


@dataclass(frozen=True, slots=True)
class Forward:
    """The pairs of one pass, all at one noise level. `padding`: they count for nothing, another rank has them.
    `expert`: the module that all of them go through, where ranks must agree on one."""

    level: float
    pairs: tuple[Pair, ...]
    padding: bool = False
    expert: str = ""


def plan_forwards(items: Sequence[UpdateItem], update_batch: int, timestep_width: int) -> tuple[Forward, ...]:
    """Samples in the task's order, timesteps in S_i's order; positions in the outer loop, so samples stay together."""
    passes: list[Forward] = []
    for start in range(0, len(items), update_batch):
        rows = range(start, min(start + update_batch, len(items)))
        longest = max(len(items[row].timesteps) for row in rows)
        width = timestep_width or max(longest, 1)
        for first in range(0, longest, width):
            pairs = [
                Pair(row, position, items[row].timesteps[position])
                for row in rows
                for position in range(first, min(first + width, len(items[row].timesteps)))
            ]
            passes.extend(_by_level(items, pairs))
    return tuple(passes)


def largest_pass(items: Sequence[UpdateItem], update_batch: int, timestep_width: int) -> int:
    """Pairs that one pass may hold."""
    longest = max((len(item.timesteps) for item in items), default=1)
    return update_batch * (timestep_width or max(longest, 1))


def _by_level(items: Sequence[UpdateItem], pairs: Sequence[Pair]) -> Iterator[Forward]:
    levels = dict.fromkeys(items[pair.item].levels[pair.index] for pair in pairs)
    for level in levels:
        yield Forward(level, tuple(pair for pair in pairs if items[pair.item].levels[pair.index] == level))
