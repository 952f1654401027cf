"""A worker's end of the control plane: one DEALER to the driver that connects again by itself.

Must not know sessions. Invariant: a message is queued only for a connection that stands. So nothing said to
one driver reaches the next, and `send` tells at once that nobody is there.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import zmq

from digend.net.addresses import resolve
from digend.net.channel import Channel
from digend.net.handshake import happening, unfinished
from digend.net.security import Security
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, frame
from digend.wire.errors import ProtocolError
from digend.wire.protocol import Refused
from digend.wire.verbs import TO_WORKER

SUSPICIOUS = 3
"""Handshakes in a row that broke off: by now it is no restart."""


class Link:
    """Made by `connect`; one task iterates over `messages`, any task of the same loop may send."""

    def __init__(self, channel: Channel, address: str, key: str | None, allowed: Collection[type]) -> None:
        self._channel = channel
        self._address = address
        self._key = key
        self._allowed = frozenset(allowed)
        self._refused = ""
        self._unfinished = 0

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        base: Path | None = None,
        allowed: Collection[type] = TO_WORKER,
        security: Security | None = None,
    ) -> "Link":
        """Returns at once, whether the driver is there or not. Raises BadAddress (NeedsKeys)."""
        endpoint = resolve(address, base, keyed=security is not None)
        channel = Channel(zmq.DEALER)
        prepare_dealer(channel.socket, endpoint)
        key = None
        if endpoint.startswith("tcp://"):
            if security:
                security.as_client(channel.socket, security.driver)
                key = security.key.public
            channel.watch()
        channel.socket.connect(endpoint)
        return cls(channel, endpoint, key, allowed)

    async def connected(self) -> None:
        """Waits until a driver is there and takes messages; for ever where one refused us, which `messages` says.

        Cancel it to give up.
        """
        if not await self._channel.writable():
            await asyncio.Event().wait()

    def send(self, message: object) -> bool:
        """Never waits. False: no driver is connected, or it takes nothing; nothing was sent. Raises
        TooLarge.
        """
        data = frame(message)
        if self._channel.closed:  # refused
            return False
        try:
            self._channel.send([data])
        except zmq.Again:
            return False
        return True

    async def messages(self) -> AsyncIterator[object]:
        """What the driver says, in order; a ProtocolError instance for what is no message.

        A fatal `Refused` is the last where it refused our key, or wants one and there is none.
        """
        watch = asyncio.create_task(self._watch(), name="handshakes")
        try:
            while (frames := await self._channel.receive()) is not None:
                self._unfinished = 0
                for data in frames:
                    yield self._received(data)
            if self._refused:
                yield Refused(reason=self._refused, fatal=True)
        finally:
            watch.cancel()

    @property
    def trouble(self) -> str:
        """What is likely wrong where no handshake came to its end lately, in words."""
        return unfinished(self._address, self._key is not None) if self._unfinished >= SUSPICIOUS else ""

    def close(self, linger_ms: int = 500) -> None:
        """Messages sent before get `linger_ms` to leave."""
        self._channel.close(linger_ms)

    async def _watch(self) -> None:
        async for event in self._channel.events():
            found = happening(event, self._address, self._key)
            self._unfinished += found.unfinished
            if found.refused:
                self._refused = found.refused
                self._channel.close(0)

    def _received(self, data: bytes) -> object:
        try:
            return decode(data, self._allowed)
        except ProtocolError as error:
            return error
