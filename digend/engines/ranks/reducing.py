"""Gradients of parameters that every rank has whole, summed over ranks in few messages.

Invariant: a parameter that no rank's passes touched has no gradient, as on one rank.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import Parameter

from digend.engines.ranks.peers import Peers

BUCKET_BYTES = 64 * 1024 * 1024
"""Of gradients that travel in one message."""


def sum_gradients(parameters: Sequence[Parameter], peers: Peers) -> None:
    touched = peers.add_up(torch.tensor([int(each.grad is not None) for each in parameters]))
    gradients = []
    for parameter, count in zip(parameters, touched.tolist(), strict=True):
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
