"""The same weights on every rank: what an adapter wants, whose base fits, and a small model in full.

Owns the sum of gradients over ranks, once a micro-batch. Invariant: all ranks step by the same bits, because a sum over
ranks is made once and told to all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, distributed
from torch.nn import Parameter

from digend.engines.forwards import Forward
from digend.engines.protocols import Context
from digend.engines.ranks.dealing import ExpertOf, deal
from digend.engines.ranks.joined import Joined
from digend.engines.ranks.peers import Peers
from digend.engines.ranks.reducing import sum_gradients
from digend.engines.stored import Part, Stored


class Replicated:
    """Every rank has all weights; gradients are summed once a micro-batch."""

    generates_together = False

    def __init__(self, peers: Joined) -> None:
        self.peers: Peers = peers

    def deal(self, planned: Sequence[Forward], largest: int, expert_of: ExpertOf) -> tuple[Forward, ...]:
        return deal(planned, self.peers.rank, self.peers.size, largest)

    def begin_pass(self, *, last: bool) -> None:
        return None

    def end_passes(self, parameters: Iterable[Parameter], context: Context) -> None:
        with context.stage("gather"):
            sum_gradients(list(parameters), self.peers)

    def begin_step(self) -> None:
        return None

    def give_up(self, once: Iterable[Callable[[], object]]) -> None:
        return None

    def whole(self, tensors: Mapping[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.peers.rank:
            return {}
        return {name: each.detach().cpu().contiguous() for name, each in tensors.items()}

    def part(self, tensors: Mapping[str, Tensor]) -> Part:
        return Part({name: each.detach().cpu().contiguous() for name, each in tensors.items()})

    def fill(self, target: Tensor, source: Stored) -> None:
        with torch.no_grad():
            if self.peers.rank == 0:
                target.copy_(source.whole())
            distributed.broadcast(target.data, 0)

    def place(self, source: Stored, like: Tensor) -> Tensor:
        placed = torch.empty(source.shape, dtype=source.dtype, device=like.device)
        self.fill(placed, source)
        return placed
