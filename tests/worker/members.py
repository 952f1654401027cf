"""Members of a broadcast as worker processes have them: blobs on real sockets, gloo, and no engine around it."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from daemons.worker.blobs import WorkerBlobs
from daemons.worker.broadcasts import Broadcasts
from daemons.worker.identity import Identity
from digend.engines import broadcasts
from digend.engines.protocols import BroadcastEngine
from digend.net.blobs import BlobClient, BlobServer
from digend.wire.broadcasts import Broadcast
from digend.wire.changes import changes_between
from digend.wire.refs import WeightsChanges, WeightsRef
from digend.wire.tensors import Array
from digend.wire.workers import Role, Versions

NAMES = ("n/trainer/0", "n/generator/0", "n/generator/1")


class Member:
    """Made on the event loop that serves its blobs. `version` is what it stands on before a broadcast."""

    def __init__(self, rank: int, folder: Path, meet_at: str = "127.0.0.1") -> None:
        self.name = NAMES[rank]
        server = BlobServer.bind("ipc", f"i{rank}", folder)
        self.blobs = WorkerBlobs(server, BlobClient())
        self.engine = broadcasts.Broadcasts("cpu", meet_at)
        identity = Identity(
            role=cast(Role, self.name.split("/")[1]),
            name=self.name,
            node="n",
            instance=f"i{rank}",
            data=server.address,
            versions=Versions(digend="0", python="3"),
            meet_at=meet_at,
        )
        self.broadcasts = Broadcasts(identity, lambda: cast(BroadcastEngine, self.engine), self.blobs)
        self._serving = asyncio.create_task(self.blobs.run())

    def close(self) -> None:
        self._serving.cancel()
        self.blobs.close()

    def publish(self, before: Mapping[str, Array] | None, after: Mapping[str, Array]) -> WeightsRef:
        """As a trainer: the whole, and what changed since `before`; with a store to meet at."""
        changes = None if before is None else changes_between(before, after)
        weights = WeightsRef(
            blob=self.blobs.serve(after),
            job="j",
            incarnation=0,
            version=1,
            num_tensors=len(after),
            form="full",
            store=self.engine.open(),
        )
        if changes is None:
            return weights
        return replace(weights, changes=WeightsChanges(since=0, blob=self.blobs.serve(changes)))


def version(number: int, num_elements: int = 3000) -> dict[str, Array]:
    """Of version 1 an element in a hundred differs from version 0. One tensor has no elements."""
    tensors: dict[str, Array] = {}
    for name, size in (("net/a", num_elements), ("net/b", num_elements // 7), ("net/none", 0)):
        values = np.random.default_rng(size).integers(0, 2**16, size, np.uint16)
        values[:: 100 if number else size + 1] ^= number
        tensors[name] = Array("bfloat16", (size,), values.view(np.uint8).data if size else b"")
    return tensors


def place(rank: int, *, epoch: int = 1, members: tuple[str, ...] = NAMES, timeout_s: float = 30.0) -> Broadcast:
    return Broadcast(epoch=epoch, rank=rank, members=members, timeout_s=timeout_s)


def contents(tensors: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (each.dtype, tuple(each.shape), bytes(each.data)) for name, each in tensors.items()}
