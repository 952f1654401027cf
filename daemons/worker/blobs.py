"""This process's blobs and the way to those of others, for any thread.

Owns the two ends of the data plane. Must not know tasks or versions. Invariant: a blob of this process is never pulled
through a socket; an error of the data plane leaves as a `TaskFault` that the decision core knows.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from digend.engines.protocols import TaskFault
from digend.net.addresses import socket_path
from digend.net.blobs import BlobClient, BlobCorrupt, BlobLost, BlobServer, Held
from digend.telemetry.logs import logger
from digend.wire.changes import apply_changes
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tensors import Array, BadTensor, digest_bytes, manifest_of, pack_manifest

log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobState:
    """`held_bytes` with `spooled_bytes`, which are on disk; `full`: more than there is room for, `trouble` says why."""

    held_bytes: int
    spooled_bytes: int
    memory_limit_bytes: int | None
    spool_limit_bytes: int
    full: bool
    trouble: str


class WorkerBlobs:
    """Made on the event loop that pulls are carried out on."""

    def __init__(self, server: BlobServer, client: BlobClient) -> None:
        self._server = server
        self._client = client
        self._loop = asyncio.get_running_loop()

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def state(self) -> BlobState:
        """How much waits here for those who need it."""
        server = self._server
        return BlobState(
            held_bytes=server.held_bytes,
            spooled_bytes=server.spooled_bytes,
            memory_limit_bytes=server.memory_limit_bytes,
            spool_limit_bytes=server.spool_limit_bytes,
            full=server.full,
            trouble=server.trouble,
        )

    async def run(self) -> None:
        """Serves other processes, for ever."""
        await self._server.serve()

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef:
        return self._server.put(tensors)

    def held(self, blob: str) -> Held | None:
        """One of this process that is not freed."""
        return self._server.held(blob)

    def free(self, blobs: Iterable[str]) -> None:
        """Ids that are not held are ignored."""
        self._server.free(blobs)

    def request(self, ref: BlobRef, names: Collection[str] | None) -> "Future[Mapping[str, Array]]":
        """Begins a pull from another thread; the future may be cancelled."""
        return asyncio.run_coroutine_threadsafe(self.pull(ref, names), self._loop)

    async def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        """Raises TaskFault("blob_lost"), also where the digest is wrong: it has to be made again."""
        try:
            return await self._pull(ref, names)
        except (BlobLost, BlobCorrupt) as error:
            raise TaskFault("blob_lost", str(error), retry=True) from error

    async def pull_weights(
        self, weights: WeightsRef, workers: Sequence[str], before: Mapping[str, Array] | None
    ) -> Mapping[str, Array]:
        """A policy version, from its trainer and from workers that have pieces of it; what comes is passed on too.

        `before`: the version that its changes are told against, where it is here. Raises TaskFault("blob_lost"), or
        TaskFault("weights") where a digest is wrong.
        """
        if weights.changes is not None and before is not None:
            try:
                return await self._changed(weights, weights.changes.blob, workers, before)
            except (BlobLost, BlobCorrupt, BadTensor) as error:
                log.warning("changes are of no use, pulling the whole", version=weights.version, error=str(error))
        try:
            return await self._shared(weights.blob, workers)
        except BlobLost as error:
            raise TaskFault("blob_lost", str(error), retry=True) from error
        except BlobCorrupt as error:
            raise TaskFault("weights", f"policy version {weights.version}: {error}") from error

    def close(self) -> None:
        """The socket file bears this life's name, so nobody else's can go with it."""
        self._client.close()
        self._server.close()
        path = socket_path(self.address)
        if path:
            path.unlink(missing_ok=True)

    async def _changed(
        self, weights: WeightsRef, changes: BlobRef, workers: Sequence[str], before: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Raises BlobLost, BlobCorrupt, BadTensor as `received` does."""
        return await self._applied(weights, await self._shared(changes, workers), before)

    async def received(
        self, weights: WeightsRef, ref: BlobRef, blob: Held, before: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """A version of which the blob `ref`, the whole or its changes, came by another way; it is passed on too.

        `before`: what changes are told against. Raises BlobCorrupt, also where they do not lead to the version that was
        published; BadTensor.
        """
        self._server.share(ref.id, blob)
        return blob.tensors if ref == weights.blob else await self._applied(weights, blob.tensors, before)

    async def _applied(
        self, weights: WeightsRef, changes: Mapping[str, Array], before: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        tensors = await asyncio.to_thread(apply_changes, before, changes)
        packed = await asyncio.to_thread(lambda: pack_manifest(manifest_of(tensors)))
        if digest_bytes(packed) != weights.blob.digest:
            raise BlobCorrupt(f"its changes do not lead to version {weights.version}")
        self._server.share(weights.blob.id, Held(packed, tensors, weights.blob.num_bytes))
        return tensors

    async def _shared(self, ref: BlobRef, workers: Sequence[str]) -> Mapping[str, Array]:
        if ref.instance == self._server.instance:
            return await self._pull(ref, None)
        others = [address for address in workers if address != self.address]
        return await self._client.pull_shared(ref, others, self._server.share)

    async def _pull(self, ref: BlobRef, names: Collection[str] | None) -> Mapping[str, Array]:
        if ref.instance != self._server.instance:
            return await self._client.pull(ref, names)
        held = self._server.held(ref.id)
        if held is None:
            raise BlobLost(f"blob {ref.id} was freed")
        own = held.tensors
        missing = [name for name in names or () if name not in own]
        if missing:
            raise BlobCorrupt(f"blob {ref.id} has no tensor {missing[0]!r}")
        return {name: array for name, array in own.items() if names is None or name in names}
