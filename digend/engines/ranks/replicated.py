"""The same weights on every rank: what an adapter wants, whose base fits, and a small model in full.

Owns the sum of gradients over ranks, once a micro-batch. Invariant: all ranks step by the same bits, because a sum over
ranks is made once and told to all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, distributed
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import Parameter

from digend.engines.forwards import Forward
from digend.engines.protocols import Context
from digend.engines.ranks.dealing import deal
from digend.engines.ranks.joined import Joined
from digend.engines.ranks.peers import Peers

BUCKET_BYTES = 64 * 1024 * 1024
"""Of gradients that travel in one message."""


class Replicated:
    """Every rank has all weights; gradients are summed once a micro-batch."""

    generates_together = False

    def __init__(self, peers: Joined) -> None:
        self.peers: Peers = peers

    def deal(self, planned: Sequence[Forward], largest: int) -> tuple[Forward, ...]:
        return deal(planned, self.peers.rank, self.peers.size, largest)

    def begin_pass(self, *, last: bool) -> None:
        return None

    def end_passes(self, parameters: Iterable[Parameter], context: Context) -> None:
        """A parameter that no rank's passes touched has no gradient, here as on one rank."""
        with context.stage("gather"):
            self._sum(list(parameters))

    def _sum(self, known: Sequence[Parameter]) -> None:
        touched = self.peers.add_up(torch.tensor([int(each.grad is not None) for each in known]))
        gradients = []
        for parameter, count in zip(known, touched.tolist(), strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            flat = _flatten_dense_tensors(bucket)  # type: ignore[no-untyped-call]
            distributed.all_reduce(flat)
            totals = _unflatten_dense_tensors(flat, bucket)  # type: ignore[no-untyped-call]
            for gradient, total in zip(bucket, totals, strict=True):
                gradient.copy_(total)

    def begin_step(self) -> None:
        return None

    def give_up(self, once: Callable[[], object]) -> None:
        return None

    def whole(self, tensors: Mapping[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.peers.rank:
            return {}
        return {name: each.detach().cpu().contiguous() for name, each in tensors.items()}

    def fill(self, target: Tensor, source: Tensor) -> None:
        with torch.no_grad():
            if self.peers.rank == 0:
                target.copy_(source)
            distributed.broadcast(target.data, 0)

    def place(self, source: Tensor, like: Tensor) -> Tensor:
        placed = torch.empty(source.shape, dtype=source.dtype, device=like.device)
        self.fill(placed, source)
        return placed


def _buckets(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Of one number type each, in order."""
    buckets: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        if not buckets or room < tensor.nbytes or buckets[-1][0].dtype != tensor.dtype:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(tensor)
        room -= tensor.nbytes
    return buckets
