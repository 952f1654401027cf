"""One checkpoint for all ranks: read by each of them, or by rank 0 and known to the others by names, types and shapes.

Owns which of the two it is: each reads where weights are in shards and all see the very same folder; they share the
comparing of digests. Invariant: every rank goes through the same tensors in the same order, so that each value can be
handed on by itself and no rank ever holds a whole checkpoint. Nothing is handed out before all digests were compared.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack
import torch

from digend.engines.arrays import dtype_name, torch_dtype
from digend.engines.checkpoints import Checkpoint, CheckpointState, mark_of, read_checkpoint
from digend.engines.ranks.peers import Peers
from digend.engines.stored import Stored

Outline = list[tuple[str, str, list[int]]]


def opened(folder: Path, digest: str, peers: Peers) -> Checkpoint:
    """Raises TaskFault("checkpoint") on all ranks where it is damaged."""
    readers = peers.size if peers.shards > 1 and _seen_by_all(folder, peers) else 1
    checkpoint = None
    with peers.agreed(patient=True):
        if peers.rank < readers:
            checkpoint = read_checkpoint(folder, digest, part=peers.rank, of=readers)
    return _shared(checkpoint, peers) if checkpoint is None or readers == 1 else checkpoint


def _seen_by_all(folder: Path, peers: Peers) -> bool:
    mark = mark_of(folder)
    first = peers.share(mark.encode()).decode()
    return int(peers.add_up(torch.tensor([int(mark == first != "")]))) == peers.size


def _shared(checkpoint: Checkpoint | None, peers: Peers) -> Checkpoint:
    """Rank 0's; on the others its outline."""
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


def _outline(tensors: Mapping[str, Stored]) -> Outline:
    return [(name, dtype_name(each.dtype), list(each.shape)) for name, each in tensors.items()]


def _hollow(outline: Outline) -> dict[str, Stored]:
    return {name: Stored(torch_dtype(dtype), tuple(shape)) for name, dtype, shape in outline}
