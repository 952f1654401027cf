"""A bound ROUTER: with keys (only those of listed ones get in, and whose it is comes with each message) or without.

Owns the socket, and with keys a context and its porter, because ZeroMQ asks one porter a context. Must not know
messages. Invariants: what has arrived through a socket with keys has a grant, or its key was taken off the list since;
what has arrived in the clear where there are keys came from an address on the trusted fabric.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Thread
from typing import Any

import zmq

from digend.net.addresses import to_bind
from digend.net.channel import Channel
from digend.net.claims import AddressInUse
from digend.net.handshake import FAILED
from digend.net.porter import Porter, Refused, admitted
from digend.net.security import Grant, Security
from digend.net.sockets import prepare_router


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message: frames without the routing id. `grant` is None without keys."""

    peer: bytes
    frames: list[bytes]
    grant: Grant | None
    unlisted: bool = False
    """It came with a key that is not in the list any more."""


class Doorway:
    """`address` is the real endpoint. On the running event loop where there are keys."""

    def __init__(
        self,
        endpoint: str,
        security: Security | None,
        *,
        roles: Collection[str] | None = None,
        refused: Refused = lambda key, address: None,
        failed: Callable[[], None] | None = None,
        copy_threshold: int = 65536,
        clear: bool = False,
    ) -> None:
        """Binds a resolved address; keys are used on TCP. Raises BadAddress, AddressInUse, OSError.

        `roles`: one of these is needed to get in; `refused(key, address)` is told who did not, `failed` of a handshake
        that did not come as far as a key. `clear`: who is on the trusted fabric gets in without a key, and nothing is
        encrypted.
        """
        guarded = security if endpoint.startswith("tcp://") else None
        self._security = None if clear else guarded
        self._roles = roles
        self._context: zmq.Context[Any] | None = zmq.Context() if guarded else None
        self.channel = Channel(zmq.ROUTER, copy_threshold=copy_threshold, context=self._context)
        self._porter: Porter | None = None
        prepare_router(self.channel.socket, endpoint)
        try:
            if guarded and self._context:
                guarded.as_clear_server(self.channel.socket) if clear else guarded.as_server(self.channel.socket)
                self._porter = Porter(self._context, guarded, roles, refused, clear=clear)
                self._porter.start()
                if failed is not None:
                    self.channel.watch(FAILED)
                    self._watching = asyncio.create_task(self._watch(failed), name="handshakes")
            self.address = _bound(self.channel.socket, to_bind(endpoint))
        except (OSError, ValueError):
            self.channel.close(0)
            self._end()
            raise

    @property
    def public(self) -> str | None:
        """The public key that who connects must know; None without keys."""
        return self._security.key.public if self._security else None

    def trusts(self, host: str) -> bool:
        """Whether an address is on the trusted fabric."""
        return self._security is not None and self._security.trusts(host)

    @property
    def encrypted(self) -> bool:
        return self._security is not None

    async def receive(self) -> Arrival | None:
        """The next message; None once it is closed."""
        frames = await self.channel.receive(copy=self._security is None)
        return None if frames is None else self._arrival(frames)

    def receive_waiting(self) -> Arrival | None:
        """A message that is there already, or None."""
        frames = self.channel.receive_waiting(copy=self._security is None)
        return None if frames is None else self._arrival(frames)

    def close(self, linger_ms: int) -> None:
        """What was sent before gets `linger_ms` to leave, in the background. The address is free when it returns."""
        self.channel.close_bound(self.address, linger_ms)
        self._end()

    async def _watch(self, failed: Callable[[], None]) -> None:
        async for _ in self.channel.events():
            failed()

    def _arrival(self, frames: list[Any]) -> Arrival:
        if self._security is None:
            return Arrival(frames[0], frames[1:], None)
        peer, *rest = (frame.bytes for frame in frames)
        public = str(frames[-1].get("User-Id"))
        grant = self._security.grant(public) if admitted(self._security, public, self._roles) else None
        return Arrival(peer, rest, grant, unlisted=grant is None)

    def _end(self) -> None:
        if self._porter:
            self._porter.stop()
            self._porter = None
        if self._context:
            # It ends when the last message has left; a thread may wait for that.
            Thread(target=self._context.term, name="last messages").start()
            self._context = None


def _bound(socket: Any, endpoint: str) -> str:
    """Binds a resolved address and gives the real one. Raises AddressInUse."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise AddressInUse(f"{endpoint} is taken by another process: stop it, or use another port") from None
        raise OSError(error.errno, f"{endpoint} cannot be bound: {error}") from None
    address: str = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return address
