"""How a trainer's ranks share its weights, as numbers: who has how much of a tensor. No tensors, no torch.

Owns the names of the layouts (`training.replicas`, `training.reshard`) and the size of a shard as torch's FSDP2 cuts
it: along the first dimension, every shard as large as the first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`replicas` copies of the weights over `ranks`. `reshard`: of shards, whether a rank gives back after each use
    what it gathered of the others'."""

    ranks: int = 1
    replicas: int = 1
    reshard: bool = True

    @property
    def shards(self) -> int:
        """Ranks that share one copy; 1: every rank has all of it."""
        return self.ranks // self.replicas

    @property
    def name(self) -> str:
        if self.shards == 1:
            return "one rank" if self.ranks == 1 else "replicate"
        kind = "shard" if self.reshard else "reshard off"
        return kind if self.replicas == 1 else f"{kind}, {self.replicas} replicas"


ONE_RANK = Layout()


def shard_numbers(shape: Sequence[int], shards: int) -> int:
    """Numbers that each rank keeps of a tensor, the filling of the last shards included."""
    return prod(shape) if not shape else -(-shape[0] // shards) * prod(shape[1:])
