"""A consumer's connection to one owner of blobs: many pulls share it, each request has its own future.

Invariants: at most CREDIT_BYTES are asked for and not yet here, and no more than a few chunks of them in this process's
memory. Whatever the owner sends renews the patience of all pulls from it: a pull that waits in line behind a large one
is not late. What was asked for over a connection that broke is lost at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import zmq

from digend.net.addresses import KEY_MARK, BadAddress, host_of, is_local, resolve
from digend.net.blob_limits import (
    CREDIT_BYTES,
    MAX_CHUNK_BYTES,
    MIN_COST_BYTES,
    WAITING_CHUNKS,
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
from digend.wire.pulls import GetManifest, GetPieces, Pieces, Pull, Pulled, PullRefused
from digend.wire.verbs import FROM_OWNER, OWNERS

Sink = Callable[[Sequence[memoryview]], None]
"""Takes a chunk's bytes, tensor by tensor; they are gone after the call."""


Question = GetManifest | Pull | GetPieces


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
        self.encrypted = self._key is not None
        self.local = is_local(endpoint)
        self._channel = Channel(zmq.DEALER)
        prepare_dealer(self._channel.socket, endpoint, max_frame_bytes=MAX_CHUNK_BYTES, waiting_messages=WAITING_CHUNKS)
        if key and security:
            security.as_client(self._channel.socket, key)
        self._channel.watch()
        self._channel.socket.connect(endpoint)
        self._credits = Credits(CREDIT_BYTES)
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

    async def ask_manifest(
        self, blob: str, offset: int, size: int, sink: Sink, ahead: int = 0, names: tuple[str, ...] = ()
    ) -> asyncio.Future[int]:
        """Asks for bytes of the manifest, as soon as there is credit, and for the first `ahead` of the tensors. The
        future gives the manifest's size, after `sink` has run.

        It fails with BlobLost or BlobCorrupt; cancel it to give up.
        """
        asked = partial(GetManifest, blob=blob, offset=offset, size=size, ahead=ahead, names=names)
        return await self._ask(asked, size + ahead, sink)

    async def ask(
        self, blob: str, offset: int, size: int, sink: Sink, names: tuple[str, ...] = ()
    ) -> asyncio.Future[int]:
        """The same for bytes of the tensors `names` laid end to end (all: none named); the future gives what they come
        to.
        """
        asked = partial(Pull, blob=blob, offset=offset, size=size, names=names)
        return await self._ask(asked, max(size, MIN_COST_BYTES), sink)

    async def ask_pieces(self, blob: str, sink: Sink) -> asyncio.Future[int]:
        """Asks which pieces are there (`Pieces.held`); the future gives their number, 0 where all are."""
        return await self._ask(partial(GetPieces, blob=blob), MIN_COST_BYTES, sink)

    async def _ask(self, question: Callable[..., Question], cost: int, sink: Sink) -> asyncio.Future[int]:
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
        while frames := await self._channel.receive(copy=False):
            self.trouble = ""
            self._renew()
            self._arrived(frames)
            del frames  # what nobody took must not wait for the next message

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
        sink([memoryview(reply.held)])
        return len(reply.held)
    sink([frame.buffer for frame in frames[1:]])
    return reply.total
