"""The driver's end of the control plane: one ROUTER, typed messages, back-pressure in bytes.

Must not know sessions or what a message means. Invariant: whatever a peer sends comes out of `batches` as a
message that it may send, or as a `Fault`; nothing a peer does ends the loop. One task iterates, for the
socket's whole life.
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

import zmq

from digend.net.addresses import resolve, socket_path
from digend.net.channel import Channel
from digend.net.claims import AddressInUse, Claim
from digend.net.flight import InFlight
from digend.net.sockets import prepare_router
from digend.wire.codec import decode, frame
from digend.wire.errors import Malformed, ProtocolError
from digend.wire.verbs import TO_DRIVER

PEER_LIMIT_BYTES = 8 * 1024 * 1024
MAX_BATCH = 256


@dataclass(frozen=True, slots=True)
class Fault:
    """What came from `peer` is no message that it may send."""

    peer: bytes
    error: ProtocolError


Received = tuple[bytes, object]
"""(peer, message) or (peer, Fault)."""


class ControlServer:
    """Made by `bind`. `address` is the real endpoint, with the port where a free one was asked for."""

    def __init__(self, channel: Channel, address: str, claim: Claim | None, allowed: Collection[type]) -> None:
        self.address = address
        self._channel = channel
        self._claim = claim
        self._allowed = frozenset(allowed)
        self._flights: dict[bytes, InFlight] = {}

    @classmethod
    async def bind(cls, address: str, *, allowed: Collection[type] = TO_DRIVER) -> "ControlServer":
        """Raises BadAddress, AddressInUse, or OSError where the socket's folder cannot be written."""
        endpoint = resolve(address, wildcard=True)
        path = socket_path(endpoint)
        claim = Claim(path) if path else None
        channel = Channel(zmq.ROUTER, copy_threshold=0)  # without copies, so that every message can be tracked
        prepare_router(channel.socket)
        try:
            return cls(channel, bound(channel.socket, endpoint), claim, allowed)
        except OSError:
            channel.close(0)
            if claim:
                claim.release()
            raise

    async def batches(self) -> AsyncIterator[list[Received]]:
        """What has arrived since the last batch, at least one item, in order of arrival."""
        while (first := await self._channel.receive()) is not None:
            batch = [self._received(first)]
            while len(batch) < MAX_BATCH and (frames := self._channel.receive_waiting()) is not None:
                batch.append(self._received(frames))
            yield batch

    async def messages(self) -> AsyncIterator[Received]:
        """The same, one by one; nothing is taken from the socket that was not asked for."""
        while (frames := await self._channel.receive()) is not None:
            yield self._received(frames)

    def send(self, peer: bytes, message: object) -> bool:
        """Never waits. False: the peer is gone, or does not take what it is sent (see `in_flight`); nothing
        was sent.

        Raises TooLarge for a message over the limit: that is a mistake here, not the peer's.
        """
        data = frame(message)
        flight = self._flights.get(peer) or InFlight()
        if flight.num_bytes() + len(data) > PEER_LIMIT_BYTES:
            return False
        try:
            flight.add(self._channel.send([peer, data], track=True), len(data))
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self._flights.pop(peer, None)
            return False
        self._flights[peer] = flight
        return True

    def in_flight(self, peer: bytes) -> int:
        """Bytes sent to the peer that still wait in this process; at most PEER_LIMIT_BYTES."""
        flight = self._flights.get(peer)
        return flight.num_bytes() if flight else 0

    def forget(self, peer: bytes) -> None:
        """The peer will not be sent anything more."""
        self._flights.pop(peer, None)

    def close(self, linger_ms: int = 500) -> None:
        """Messages sent before get `linger_ms` to leave. Frees the address."""
        self._channel.close_bound(self.address, linger_ms)
        self._flights.clear()
        if self._claim:
            self._claim.release()

    def _received(self, frames: list[bytes]) -> Received:
        peer = frames[0]
        try:
            if len(frames) != 2:
                raise Malformed(f"{len(frames) - 1} frames, not one")
            return peer, decode(frames[1], self._allowed)
        except ProtocolError as error:
            return peer, Fault(peer, error)


def bound(socket: Any, endpoint: str) -> str:
    """Binds a resolved address and gives the real one. Raises AddressInUse."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise AddressInUse(f"{endpoint} is taken by another process: stop it, or use another port") from None
        raise OSError(error.errno, f"{endpoint} cannot be bound: {error}") from None
    address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return address
