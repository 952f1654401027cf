"""A blob from its owner alone, with its first bytes asked for right behind the manifest, before that is here.

Must not know what the tensors mean. Invariant: nothing is kept of what comes before the manifest is whole and checked;
it is asked for again.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

from digend.net.blob_limits import (
    CHUNK_BYTES,
    CHUNKS,
    MANIFEST_BYTES,
    MAX_CHUNK_BYTES,
    MAX_MANIFEST_BYTES,
    MIN_COST_BYTES,
    BlobCorrupt,
)
from digend.net.incoming import Incoming
from digend.net.owner_link import OwnerLink, Sink
from digend.wire.pulls import Manifest
from digend.wire.refs import BlobRef
from digend.wire.tensors import BadTensor, digest_bytes, unpack_manifest

MAX_NAMES = 64 * 1024
"""Characters of the names in a request for what no manifest has told the place of."""


class Fetch:
    """One pull of `names` (all: None). Raises BlobLost, BlobCorrupt; at most `max_bytes` are taken."""

    def __init__(self, link: OwnerLink, ref: BlobRef, names: Collection[str] | None, max_bytes: int) -> None:
        self._link = link
        self._ref = ref
        self._names = None if names is None else tuple(dict.fromkeys(names))
        self._max_bytes = max_bytes
        self._chunk_bytes = _chunk_bytes(ref.num_bytes, link)
        self._packed = bytearray()
        self._incoming: Incoming | None = None
        self._asked: deque[asyncio.Future[int]] = deque()

    async def manifest(self) -> Incoming:
        """Without any of its bytes."""
        return await self._rest_of_manifest(await self._ask_manifest())

    async def run(self) -> Incoming:
        """With all of its bytes, as many on their way as there is credit for; replies come in the requests' order."""
        try:
            ahead = self._ahead()
            first = await self._ask_manifest(ahead)
            begin = await self._ask_ahead(ahead, first)
            await first
            if self._incoming is None:  # a manifest of several chunks
                self._give_up()
                begin = 0
            incoming = await self._rest_of_manifest(first)
            for offset, size in incoming.runs(begin, self._chunk_bytes):
                sink = partial(incoming.take, offset, size)
                await self._ask(offset, size, sink)
            while self._asked:
                await self._asked[0]
                self._asked.popleft()
        finally:
            self._give_up()
        return incoming

    def _ahead(self) -> int:
        """Bytes that are to come with the manifest."""
        if self._names == () or sum(map(len, self._names or ())) > MAX_NAMES:
            return 0
        return min(self._chunk_bytes, self._ref.num_bytes)

    async def _ask_ahead(self, offset: int, manifest: "asyncio.Future[int]") -> int:
        """Asks for what comes behind that, until the manifest is here or all is asked for. Up to where."""
        names = self._names or ()
        while 0 < offset < self._ref.num_bytes and not manifest.done():
            size = min(self._chunk_bytes, self._ref.num_bytes - offset)
            await self._ask(offset, size, partial(self._take_ahead, offset, size), names)
            offset += size
        return offset

    async def _ask(self, offset: int, size: int, sink: Sink, names: tuple[str, ...] = ()) -> None:
        """Raises what became of those asked before, as soon as it is known."""
        while self._asked and self._asked[0].done():
            self._asked.popleft().result()
        self._asked.append(await self._link.ask(self._ref.id, offset, size, sink, names))

    def _take_ahead(self, offset: int, size: int, chunk: Sequence[memoryview]) -> None:
        if self._incoming is not None:
            self._incoming.take(offset, size, chunk, named=True)

    async def _ask_manifest(self, ahead: int = 0) -> "asyncio.Future[int]":
        sink = partial(self._take_manifest, ahead)
        names = self._names or () if ahead else ()
        return await self._link.ask_manifest(self._ref.id, len(self._packed), MANIFEST_BYTES, sink, ahead, names)

    def _take_manifest(self, ahead: int, chunk: Sequence[memoryview]) -> None:
        """It is whole once it has the digest of the reference."""
        self._packed.extend(b"".join(chunk[:1]))
        if digest_bytes(self._packed) == self._ref.digest:
            packed = bytes(self._packed)
            self._incoming = Incoming(self._ref, packed, unpacked(packed, self._ref), self._names, self._max_bytes)
            self._take_ahead(0, ahead, chunk[1:])

    async def _rest_of_manifest(self, asked: "asyncio.Future[int]") -> Incoming:
        """`asked`: for its first bytes."""
        before, total = 0, await asked
        while self._incoming is None:
            if total > MAX_MANIFEST_BYTES or len(self._packed) == before:
                raise BlobCorrupt(f"blob {self._ref.id}: {total} bytes of manifest, {len(self._packed)} came")
            if len(self._packed) >= total:
                raise BlobCorrupt(f"blob {self._ref.id}: its manifest has another digest than the reference")
            before = len(self._packed)
            total = await (await self._ask_manifest())
        return self._incoming

    def _give_up(self) -> None:
        for future in self._asked:
            if not future.cancel():
                with suppress(asyncio.CancelledError):
                    future.exception()
        self._asked.clear()


def _chunk_bytes(blob_bytes: int, link: OwnerLink) -> int:
    """A small blob that comes at once, and stays where it came, costs least. But one that is encrypted would be in
    memory once more at either end, and over a slow network many chunks renew the patience more often than one.
    """
    if link.local and not link.encrypted and blob_bytes <= MAX_CHUNK_BYTES:
        return MAX_CHUNK_BYTES
    return min(CHUNK_BYTES, max(MIN_COST_BYTES, blob_bytes // CHUNKS))


def unpacked(packed: bytes, ref: BlobRef) -> Manifest:
    """Raises BlobCorrupt."""
    try:
        return unpack_manifest(packed)
    except BadTensor as error:
        raise BlobCorrupt(f"blob {ref.id}: {error}") from None
