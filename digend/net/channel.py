"""One asyncio ZeroMQ socket: sending that never waits, receiving by one task.

Must not know messages. Invariant: `send` either hands all frames to ZeroMQ or none, and never waits in line
behind another send: a full peer must not hold up the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from itertools import count
from typing import Any

import zmq
import zmq.asyncio

from digend.net.addresses import socket_path
from digend.net.handshake import EVENTS, event_of

CLOSE_MS = 2_000
_NUMBERS = count()
"""Of watched sockets: ZeroMQ lets go of a name some time after its socket was closed."""


class Channel:
    """Owns the socket. `copy_threshold`: frames of at least so many bytes are sent without a copy. `context`: another
    than the process's.
    """

    def __init__(
        self, socket_type: int, *, copy_threshold: int = 65536, context: "zmq.Context[Any] | None" = None
    ) -> None:
        self._context = context or zmq.Context.instance()
        self.socket: Any = zmq.asyncio.Socket(self._context, socket_type)
        self._plain: Any = zmq.Socket.shadow(self.socket)
        self._plain.copy_threshold = copy_threshold
        self._monitor: zmq.asyncio.Socket | None = None

    def send(self, frames: list[Any], *, track: bool = False, copy: bool = False) -> Any:
        """The last frame's tracker where asked for. That frame is sent without a copy, unless `copy`; sharing memory
        with ZeroMQ takes longer than copying a routing id or a header.

        Raises zmq.Again (full, or nobody is connected), zmq.ZMQError (unroutable).
        """
        try:
            for frame in frames[:-1]:  # ZeroMQ takes all frames of a message whose first it has taken
                self._plain.send(frame, flags=zmq.NOBLOCK | zmq.SNDMORE)
            return self._plain.send(frames[-1], flags=zmq.NOBLOCK, copy=copy, track=track)
        finally:
            # Sending may swallow the edge that announces messages. Asking for the events wakes the reader, but only
            # by `get`: `getsockopt` is the plain socket's and tells asyncio nothing.
            self.socket.get(zmq.EVENTS)

    async def receive(self, *, copy: bool = True) -> list[Any] | None:
        """All frames of the next message; None once the socket is closed."""
        return await _receive(self.socket, copy)

    def receive_waiting(self, *, copy: bool = True) -> list[Any] | None:
        """A message that is there already, or None."""
        try:
            frames: list[Any] = self._plain.recv_multipart(flags=zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            return None
        return frames

    async def writable(self) -> bool:
        """Waits until somebody is connected and takes messages. False: the socket was closed."""
        while not self.socket.closed:
            if await _unless_closed(self.socket, self.socket.poll(60_000, zmq.POLLOUT)):
                return True
        return False

    def watch(self, events: int = EVENTS) -> None:
        """Keeps what happens to the connection for `events`. Before connect or bind."""
        address = f"inproc://watch-{next(_NUMBERS)}"
        self._plain.monitor(address, events)
        self._monitor = zmq.asyncio.Socket(self._context, zmq.PAIR)
        self._monitor.set(zmq.RCVHWM, 0)  # with a full pipe ZeroMQ's thread would wait, and all its sockets with it
        self._monitor.connect(address)

    async def events(self) -> AsyncIterator[int]:
        """What has happened to the connection since `watch` (`digend.net.handshake`), until `close`. One task."""
        while self._monitor is not None and (frames := await _receive(self._monitor, copy=True)) is not None:
            yield event_of(frames)

    @property
    def closed(self) -> bool:
        return bool(self.socket.closed)

    def close(self, linger_ms: int) -> None:
        """What was sent before gets `linger_ms` to leave, in the background."""
        if self.socket.closed:
            return
        self._look_away()
        self.socket.close(linger_ms)

    def _look_away(self) -> None:
        if self._monitor is not None:
            self._plain.disable_monitor()  # first: ZeroMQ would wait for a reader that is gone
            self._monitor.close(0)
            self._monitor = None

    def close_bound(self, address: str, linger_ms: int) -> None:
        """The same for a bound socket; returns once the address is free to be bound again, or after CLOSE_MS.

        ZeroMQ closes the listener in a thread of its own, and leaves an ipc socket file behind.
        """
        if self.socket.closed:
            return
        self._look_away()
        name = f"inproc://closing-{next(_NUMBERS)}"  # ZeroMQ lets go of its own name for it some time after
        monitor: zmq.Socket[bytes] = self._plain.get_monitor_socket(zmq.EVENT_CLOSED, name)
        self._plain.unbind(self._plain.last_endpoint)
        monitor.poll(CLOSE_MS)
        self._plain.disable_monitor()  # before its reader goes: ZeroMQ's thread would wait for one for ever
        monitor.close(0)
        self.socket.close(linger_ms)
        if path := socket_path(address):
            path.unlink(missing_ok=True)


async def _receive(socket: Any, copy: bool) -> list[Any] | None:
    if socket.closed:
        return None
    frames: list[Any] | None = await _unless_closed(socket, socket.recv_multipart(copy=copy))
    return frames


async def _unless_closed(socket: Any, waiting: Awaitable[Any]) -> Any:
    """What is waited for; None where the socket is closed meanwhile."""
    try:
        return await waiting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if socket.closed and not (task and task.cancelling()):
            return None  # closing a socket cancels who waits for it; that is its end, not the task's
        raise
