"""A checkpoint as ranks that did not read it know it: names, types and shapes, and no values.

Invariant: every rank goes through the same tensors in the same order, so that each value can be handed on by itself and
no rank but 0 ever holds a whole checkpoint.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgpack
import torch
from torch import Tensor

from digend.engines.arrays import dtype_name, torch_dtype
from digend.engines.checkpoints import Checkpoint, CheckpointState
from digend.engines.ranks.peers import Peers

Outline = list[tuple[str, str, list[int]]]


def shared(checkpoint: Checkpoint | None, peers: Peers) -> Checkpoint:
    """Rank 0's checkpoint; on the others its outline, with tensors on the meta device."""
    packed = b"" if checkpoint is None or peers.size == 1 else _packed(checkpoint)
    received = peers.share(packed)
    if checkpoint is not None:
        return checkpoint
    state, *parts = msgpack.unpackb(received)
    fields: dict[str, Any] = {**state, "gradient_norms": tuple(state["gradient_norms"])}
    return Checkpoint(CheckpointState(**fields), *(_hollow(part) for part in parts))


def _packed(checkpoint: Checkpoint) -> bytes:
    parts = (checkpoint.weights, checkpoint.optimizer, checkpoint.averages, checkpoint.masters)
    packed: bytes = msgpack.packb([asdict(checkpoint.state), *(_outline(part) for part in parts)])
    return packed


def _outline(tensors: Mapping[str, Tensor]) -> Outline:
    return [(name, dtype_name(each.dtype), list(each.shape)) for name, each in tensors.items()]


def _hollow(outline: Outline) -> dict[str, Tensor]:
    return {name: torch.empty(shape, dtype=torch_dtype(dtype), device="meta") for name, dtype, shape in outline}
