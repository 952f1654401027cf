"""A consumer's connection to one owner of blobs: many pulls share it, each request has its own future.

Invariant: at most CREDIT_BYTES (KEYED_CREDIT_BYTES where encrypted) are asked for and not yet here. Whatever the owner
sends renews the patience of all pulls from it: a pull that waits in line behind a large one is not late. What was asked
for over a connection that broke is lost at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import zmq

from digend.net.addresses import KEY_MARK, BadAddress, host_of, is_local, resolve
from digend.net.blob_limits import (
    CREDIT_BYTES,
    KEYED_CREDIT_BYTES,
    MAX_CHUNK_BYTES,
    MIN_COST_BYTES,
    BlobCorrupt,
    BlobLost,
)
from digend.net.channel import Channel
from digend.net.credits import Credits
from digend.net.handshake import happening, unfinished
from digend.net.porter import admitted
from digend.net.security import Security
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, encode
from digend.wire.errors import ProtocolError
from digend.wire.pulls import GetPieces, Pieces, Pull, Pulled, PullRefused
from digend.wire.verbs import FROM_OWNER, OWNERS

Sink = Callable[[memoryview], None]
"""Takes a chunk's bytes, which are gone after the call."""


@dataclass(frozen=True, slots=True)
class _Asked:
    sink: Sink
    done: asyncio.Future[int]


class OwnerLink:
    """Belongs to the running event loop. `owner` is the address of a reference.

    Raises BadAddress: also where it names no key and is on another machine, or names one that is not a worker's.
    """

    def __init__(self, owner: str, security: Security | None = None) -> None:
        address, _, key = owner.partition(KEY_MARK)
        endpoint = resolve(address, keyed=True)
        self.owner = owner
        self.address = address
        self.trouble = ""
        """Why nothing ever comes from it, or is likely not to."""
        self._key = _checked(endpoint, key, security)
        self._channel = Channel(zmq.DEALER)
        prepare_dealer(self._channel.socket, endpoint, max_frame_bytes=MAX_CHUNK_BYTES)
        if key and security:
            security.as_client(self._channel.socket, key)
        self._channel.watch()
        self._channel.socket.connect(endpoint)
        self._credits = Credits(KEYED_CREDIT_BYTES if self._key else CREDIT_BYTES)
        self._asked: dict[str, _Asked] = {}
        self._numbers = count()
        self._patience: dict[asyncio.Timeout, float] = {}
        self._tasks = (
            asyncio.create_task(self._read(), name=f"blobs from {address}"),
            asyncio.create_task(self._watch(), name=f"connection to {address}"),
        )

    @property
    def idle(self) -> bool:
        """No pull uses it."""
        return not self._patience

    @asynccontextmanager
    async def patience(self, timeout_s: float) -> AsyncIterator[None]:
        """The block begins once the owner is connected, and gets TimeoutError after `timeout_s` of its silence."""
        async with asyncio.timeout(timeout_s) as timeout:
            self._patience[timeout] = timeout_s
            try:
                if not await self._channel.writable():
                    raise TimeoutError("the connection was closed")
                yield
            finally:
                del self._patience[timeout]

    async def ask(self, blob: str, name: str, offset: int, size: int, sink: Sink) -> asyncio.Future[int]:
        """Asks for a chunk, as soon as there is credit. The future gives the tensor's size, after `sink` has run.

        It fails with BlobLost or BlobCorrupt; cancel it to give up.
        """
        asked = partial(Pull, blob=blob, name=name, offset=offset, size=size)
        return await self._ask(asked, max(size, MIN_COST_BYTES), sink)

    async def ask_pieces(self, blob: str, sink: Sink) -> asyncio.Future[int]:
        """Asks which pieces are there (`Pieces.held`); the future gives their number, 0 where all are."""
        return await self._ask(partial(GetPieces, blob=blob), MIN_COST_BYTES, sink)

    async def _ask(self, question: Callable[..., Pull | GetPieces], cost: int, sink: Sink) -> asyncio.Future[int]:
        await self._credits.take(cost)
        request = str(next(self._numbers))
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[request] = _Asked(sink, done)
        done.add_done_callback(lambda _: self._settle(request, cost))
        try:
            self._channel.send([encode(question(request=request))])
        except zmq.Again:  # credit keeps its queue from filling, so nobody is connected
            done.set_exception(self._broke())
        return done

    def close(self) -> None:
        """The tasks end by themselves; what was asked for never comes."""
        self._channel.close(0)

    def _settle(self, request: str, cost: int) -> None:
        self._asked.pop(request, None)
        self._credits.give(cost)

    async def _read(self) -> None:
        while (frames := await self._channel.receive(copy=False)) is not None:
            self.trouble = ""
            self._renew()
            self._arrived(frames)

    async def _watch(self) -> None:
        async for event in self._channel.events():
            found = happening(event, self.address, self._key)
            if found.refused:
                self.trouble = found.refused
                self._expire()
            elif found.unfinished:
                self.trouble = unfinished(self.address, self._key is not None)
            elif found.broke:
                self._fail()

    def _fail(self) -> None:
        for asked in list(self._asked.values()):
            if not asked.done.done():
                asked.done.set_exception(self._broke())

    def _expire(self) -> None:
        """No handshake will come to its end: who waits need not wait longer."""
        now = asyncio.get_running_loop().time()
        for timeout in self._patience:
            if not timeout.expired():
                timeout.reschedule(now)

    def _broke(self) -> BlobLost:
        return BlobLost(f"the connection to {self.address} broke")

    def _renew(self) -> None:
        now = asyncio.get_running_loop().time()
        for timeout, timeout_s in self._patience.items():
            if not timeout.expired():
                timeout.reschedule(now + timeout_s)

    def _arrived(self, frames: list[Any]) -> None:
        try:
            reply = decode(frames[0].buffer, FROM_OWNER)
        except ProtocolError:
            return  # not an owner of blobs; the pulls end by their own patience
        asked = self._asked.get(reply.request)
        if asked is None or asked.done.done():
            return
        try:
            asked.done.set_result(_total(reply, frames, asked.sink))
        except (BlobLost, BlobCorrupt) as error:
            asked.done.set_exception(error)


def _checked(endpoint: str, key: str, security: Security | None) -> str | None:
    """Our public key, where one is used for the owner's `key`. Raises BadAddress."""
    if not key:
        if not is_local(endpoint) and not (security and security.trusts(host_of(endpoint))):
            raise BadAddress(
                f"{endpoint} is on another machine and its reference names no key: nothing goes in the clear but to "
                "keys.trusted_fabric of the node file"
            )
        return None
    if security is None:
        raise BadAddress(f"{endpoint} wants keys, and there are none here: name one in [keys] of the node file")
    if not admitted(security, key, OWNERS):
        raise BadAddress(f"{endpoint} has a key that is not listed here as a worker's (keys.toml)")
    return security.key.public


def _total(reply: Pulled | Pieces | PullRefused, frames: list[Any], sink: Sink) -> int:
    if isinstance(reply, PullRefused):
        raise BlobLost(reply.reason)
    if isinstance(reply, Pieces):
        sink(memoryview(reply.held))
        return len(reply.held)
    if len(frames) != 2:
        raise BlobCorrupt(f"a chunk came in {len(frames)} frames, not two")
    sink(frames[1].buffer)
    return reply.total
