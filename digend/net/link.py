"""A worker's end of the control plane: one DEALER to the driver that connects again by itself.

Must not know sessions. Invariant: a message is queued only for a connection that stands. So nothing said to
one driver reaches the next, and `send` tells at once that nobody is there.
"""

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import zmq

from digend.net.addresses import resolve
from digend.net.channel import Channel
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, frame
from digend.wire.errors import Malformed, ProtocolError
from digend.wire.verbs import TO_WORKER


class Link:
    """Made by `connect`; one task iterates over `messages`, any task of the same loop may send."""

    def __init__(self, channel: Channel, allowed: Collection[type]) -> None:
        self._channel = channel
        self._allowed = frozenset(allowed)

    @classmethod
    def connect(cls, address: str, *, base: Path | None = None, allowed: Collection[type] = TO_WORKER) -> "Link":
        """Returns at once, whether the driver is there or not. Raises BadAddress."""
        endpoint = resolve(address, base)
        channel = Channel(zmq.DEALER)
        prepare_dealer(channel.socket)
        channel.socket.connect(endpoint)
        return cls(channel, allowed)

    async def connected(self) -> None:
        """Waits until a driver is there and takes messages. Cancel it to give up."""
        await self._channel.writable()

    def send(self, message: object) -> bool:
        """Never waits. False: no driver is connected, or it takes nothing; nothing was sent. Raises
        TooLarge.
        """
        data = frame(message)
        try:
            self._channel.send([data])
        except zmq.Again:
            return False
        return True

    async def messages(self) -> AsyncIterator[object]:
        """What the driver says, in order; a ProtocolError instance for what is no message."""
        while (frames := await self._channel.receive()) is not None:
            yield self._received(frames)

    def close(self, linger_ms: int = 500) -> None:
        """Messages sent before get `linger_ms` to leave."""
        self._channel.close(linger_ms)

    def _received(self, frames: list[bytes]) -> object:
        try:
            if len(frames) != 1:
                raise Malformed(f"{len(frames)} frames, not one")
            return decode(frames[0], self._allowed)
        except ProtocolError as error:
            return error
