"""Pulls tensors from their owners, by reference, and checks them.

Must not know what the tensors mean. Invariant: a tensor that `pull` returns has the digest that the reference
covers; no memory is taken before its size was checked against dtype, shape and reference.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress

from digend.net.addresses import BadAddress, nearest
from digend.net.blob_limits import CHUNK_BYTES, MAX_MANIFEST_BYTES, MAX_PULL_BYTES, BlobCorrupt, BlobLost
from digend.net.owner_link import OwnerLink, Sink
from digend.net.security import Security
from digend.wire.pulls import Manifest, TensorSpec
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array, BadTensor, digest_bytes, unpack_manifest

INLINE_BYTES = 1024 * 1024
"""Fewer bytes than these are digested where they are; more go to a thread, so that the loop goes on."""


class BlobClient:
    """One a process, used by the tasks of one event loop. A connection to each owner is kept and shared."""

    def __init__(self, *, max_bytes: int = MAX_PULL_BYTES, security: Security | None = None) -> None:
        self._max_bytes = max_bytes
        self._security = security
        self._links: dict[str, OwnerLink] = {}

    async def pull(
        self, ref: BlobRef, names: Collection[str] | None = None, timeout_s: float = 10.0
    ) -> dict[str, Array]:
        """The blob's tensors (or those named), in manifest order. `timeout_s` of silence from the owner is too long.

        Raises BlobLost; BlobCorrupt, also for a name that the blob does not have.
        """
        link = self._link(ref)
        try:
            async with link.patience(timeout_s):
                specs = self._chosen(await _manifest(link, ref), ref, names)
                buffers = {spec.name: bytearray(spec.num_bytes) for spec in specs}
                await _fetch(link, ref, buffers)
        except TimeoutError:
            self._drop_if_idle(link)
            why = link.trouble or f"{link.address} was silent for {timeout_s:g} s"
            raise BlobLost(f"blob {ref.id}: {why}") from None
        await _check(ref, specs, buffers)
        return {spec.name: Array(spec.dtype, spec.shape, memoryview(buffers[spec.name])) for spec in specs}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _link(self, ref: BlobRef) -> OwnerLink:
        link = self._links.get(ref.owner)
        if link is None:
            try:
                link = self._links[ref.owner] = OwnerLink(ref.owner, self._security)
            except BadAddress as error:
                raise BlobLost(f"blob {ref.id}: {error}") from None
        return link

    def _drop_if_idle(self, link: OwnerLink) -> None:
        """A silent owner is likely dead, and its successor has another address."""
        if link.idle and self._links.get(link.owner) is link:
            del self._links[link.owner]
            link.close()

    def _chosen(self, manifest: Manifest, ref: BlobRef, names: Collection[str] | None) -> list[TensorSpec]:
        if sum(spec.num_bytes for spec in manifest.tensors) != ref.num_bytes:
            raise BlobCorrupt(f"blob {ref.id}: its manifest does not add up to {ref.num_bytes} bytes")
        known = {spec.name: spec for spec in manifest.tensors}
        wanted = known.keys() if names is None else frozenset(names)
        for name in sorted(wanted - known.keys()):
            raise BlobCorrupt(f"blob {ref.id} has no tensor {name!r}{nearest(name, tuple(known))}")
        specs = [spec for name, spec in known.items() if name in wanted]
        num_bytes = sum(spec.num_bytes for spec in specs)
        if num_bytes > self._max_bytes:
            raise BlobCorrupt(f"blob {ref.id}: {num_bytes} bytes are over the limit of {self._max_bytes}")
        return specs


async def _manifest(link: OwnerLink, ref: BlobRef) -> Manifest:
    packed = bytearray()
    total = 1
    while len(packed) < total:
        before = len(packed)
        total = await (await link.ask(ref.id, "", before, CHUNK_BYTES, packed.extend))
        if total > MAX_MANIFEST_BYTES or len(packed) == before:
            raise BlobCorrupt(f"blob {ref.id}: {total} bytes of manifest, {len(packed)} came")
    if digest_bytes(packed) != ref.digest:
        raise BlobCorrupt(f"blob {ref.id}: its manifest has another digest than the reference")
    try:
        return unpack_manifest(bytes(packed))
    except BadTensor as error:
        raise BlobCorrupt(f"blob {ref.id}: {error}") from None


async def _fetch(link: OwnerLink, ref: BlobRef, buffers: dict[str, bytearray]) -> None:
    """Keeps as many chunks on their way as there is credit for. Replies come in the order of the requests."""
    asked: deque[asyncio.Future[int]] = deque()
    try:
        for name, offset, target in _chunks(buffers):
            while asked and asked[0].done():
                asked.popleft().result()
            asked.append(await link.ask(ref.id, name, offset, len(target), _into(target, name)))
        while asked:
            await asked[0]
            asked.popleft()
    finally:
        for future in asked:
            if not future.cancel():
                with suppress(asyncio.CancelledError):
                    future.exception()


def _chunks(buffers: dict[str, bytearray]) -> Iterator[tuple[str, int, memoryview]]:
    for name, buffer in buffers.items():
        for offset in range(0, len(buffer), CHUNK_BYTES):
            yield name, offset, memoryview(buffer)[offset : offset + CHUNK_BYTES]


def _into(target: memoryview, name: str) -> Sink:
    def sink(data: memoryview) -> None:
        if len(data) != len(target):
            raise BlobCorrupt(f"tensor {name!r}: a chunk has {len(data)} bytes, not {len(target)}")
        target[:] = data

    return sink


async def _check(ref: BlobRef, specs: list[TensorSpec], buffers: dict[str, bytearray]) -> None:
    if sum(spec.num_bytes for spec in specs) < INLINE_BYTES:
        _check_digests(ref, specs, buffers)
    else:
        await asyncio.to_thread(_check_digests, ref, specs, buffers)


def _check_digests(ref: BlobRef, specs: list[TensorSpec], buffers: dict[str, bytearray]) -> None:
    for spec in specs:
        if digest_bytes(buffers[spec.name]) != spec.digest:
            raise BlobCorrupt(f"blob {ref.id}: tensor {spec.name!r} has another digest than its manifest")
