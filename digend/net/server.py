"""The driver's end of the control plane: one ROUTER, typed messages, back-pressure in bytes.

Must not know sessions or what a message means. Invariant: whatever a peer sends comes out of `batches` as a
message that it may send, or as a `Fault`; nothing a peer does ends the loop. What a peer may send is its key's and its
role's, and is looked at before the fields of a message are. One task iterates, for the socket's whole life.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass

import zmq

from digend.net.addresses import resolve, socket_path
from digend.net.claims import Claim
from digend.net.doorway import Arrival, Doorway
from digend.net.flight import InFlight
from digend.net.porter import Refused
from digend.net.security import Grant, Security
from digend.net.turned_away import WHO, TurnedAway
from digend.wire.codec import decode, frame
from digend.wire.errors import Malformed, NotAllowed, NotListed, ProtocolError
from digend.wire.verbs import FROM_ROLE, TO_DRIVER

SMALL_BYTES = 4096
"""Smaller messages are copied and not counted, because to follow a message costs more than to copy it; ZeroMQ's limit
on their number holds them to 4 MiB a peer.
"""
PEER_LIMIT_BYTES = 8 * 1024 * 1024
MAX_BATCH = 256


@dataclass(frozen=True, slots=True)
class Fault:
    """What came from `peer` is no message that it may send."""

    peer: bytes
    error: ProtocolError


Received = tuple[bytes, object]
"""(peer, message) or (peer, Fault)."""


RoleOf = Callable[[bytes], str | None]
"""The role that a peer has taken in its session, where it has one."""


class ControlServer:
    """Made by `bind`. `address` is the real endpoint, with the port where a free one was asked for."""

    def __init__(
        self, doorway: Doorway, claim: Claim | None, allowed: Collection[type], turned_away: TurnedAway | None = None
    ) -> None:
        self.address = doorway.address
        self._doorway = doorway
        self._channel = doorway.channel
        self._claim = claim
        self._allowed = frozenset(allowed)
        self._flights: dict[bytes, InFlight] = {}
        self._grants: dict[bytes, Grant] = {}
        self._role_of: RoleOf = lambda peer: None
        self._turned_away = turned_away or TurnedAway()

    @classmethod
    async def bind(
        cls,
        address: str,
        *,
        allowed: Collection[type] = TO_DRIVER,
        security: Security | None = None,
        refused: Refused = lambda key, address: None,
        suspected: Callable[[str], None] = lambda why: None,
    ) -> "ControlServer":
        """`refused(key, address)` is told whose handshake was refused, `suspected(why)` that others fail again and
        again.

        Raises BadAddress (NeedsKeys), AddressInUse, or OSError where the socket's folder cannot be written.
        """
        endpoint = resolve(address, wildcard=True, keyed=security is not None)
        path = socket_path(endpoint)
        claim = Claim(path) if path else None
        away = TurnedAway()

        def turned_away(public: str, address: str) -> None:
            away.refused(public, address, time.monotonic())
            refused(public, address)

        def failed() -> None:
            if away.broke_off(time.monotonic()):
                suspected(WHO)

        try:  # without copies, so that messages can be tracked
            doorway = Doorway(endpoint, security, refused=turned_away, failed=failed, copy_threshold=0)
            return cls(doorway, claim, allowed, away)
        except (OSError, ValueError):
            if claim:
                claim.release()
            raise

    @property
    def encrypted(self) -> bool:
        """Whether all that is said here is."""
        return self._doorway.encrypted

    def trusts(self, host: str) -> bool:
        """Whether an address is on the fabric that this process trusts with tensors in the clear."""
        return self._doorway.trusts(host)

    def limit(self, role_of: RoleOf) -> None:
        """From now on peers may send what `role_of` gives them, and no more."""
        self._role_of = role_of

    def grant(self, peer: bytes) -> Grant | None:
        """What is listed for the key of a peer, for messages of the last batch. None without keys."""
        return self._grants[peer] if self.encrypted else None

    async def batches(self) -> AsyncIterator[list[Received]]:
        """What has arrived since the last batch, at least one item, in order of arrival."""
        while (first := await self._doorway.receive()) is not None:
            self._grants.clear()
            batch = [self._received(first)]
            while len(batch) < MAX_BATCH and (arrival := self._doorway.receive_waiting()) is not None:
                batch.append(self._received(arrival))
            yield batch

    async def messages(self) -> AsyncIterator[Received]:
        """The same, one by one; nothing is taken from the socket that was not asked for."""
        while (arrival := await self._doorway.receive()) is not None:
            self._grants.clear()
            yield self._received(arrival)

    def send(self, peer: bytes, message: object) -> bool:
        """Never waits. False: the peer is gone, or does not take what it is sent (see `in_flight`); nothing
        was sent.

        Raises TooLarge for a message over the limit: that is a mistake here, not the peer's.
        """
        return self.send_frames(peer, [frame(message)])

    def send_frames(self, peer: bytes, frames: Sequence[bytes]) -> bool:
        """The same for several messages, framed, that the peer receives one after another and wakes once for. All are
        sent, or none."""
        flight = self._flights.get(peer) or InFlight()
        size = sum(map(len, frames))
        if flight.num_bytes() + size > PEER_LIMIT_BYTES:
            return False
        try:
            if size < SMALL_BYTES:
                self._channel.send([peer, *frames], copy=True)
            else:  # ZeroMQ lets go of the last one last
                flight.add(self._channel.send([peer, *frames], track=True), size)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self._flights.pop(peer, None)
            return False
        self._flights[peer] = flight
        return True

    def turned_away(self) -> tuple[str, ...]:
        """Who did not get in lately, in words."""
        return self._turned_away.words(time.monotonic())

    def in_flight(self, peer: bytes) -> int:
        """Bytes of messages from SMALL_BYTES on that still wait in this process; at most PEER_LIMIT_BYTES."""
        flight = self._flights.get(peer)
        return flight.num_bytes() if flight else 0

    def waiting_bytes(self) -> int:
        """`in_flight` of all peers."""
        return sum(flight.num_bytes() for flight in self._flights.values())

    def forget(self, peer: bytes) -> None:
        """The peer will not be sent anything more."""
        self._flights.pop(peer, None)

    def close(self, linger_ms: int = 500) -> None:
        """Messages sent before get `linger_ms` to leave. Frees the address."""
        self._doorway.close(linger_ms)
        self._flights.clear()
        if self._claim:
            self._claim.release()

    def _received(self, arrival: Arrival) -> Received:
        peer, grant = arrival.peer, arrival.grant
        if grant:
            self._grants[peer] = grant
        try:
            if arrival.unlisted:
                raise NotListed
            if len(arrival.frames) != 1:
                raise Malformed(f"{len(arrival.frames)} frames, not one")
            return peer, self._decoded(arrival.frames[0], grant, self._role_of(peer))
        except ProtocolError as error:
            return peer, Fault(peer, error)

    def _decoded(self, data: bytes, grant: Grant | None, role: str | None) -> object:
        """Raises ProtocolError; NotAllowed says whose message it is not."""
        allowed = self._allowed if grant is None else self._allowed & grant.verbs
        if role is not None:
            allowed = allowed & FROM_ROLE[role]
        try:
            return decode(data, allowed)
        except NotAllowed as error:
            raise NotAllowed(error.name, f"a {role}" if role else f"the key of {grant}" if grant else "") from None
