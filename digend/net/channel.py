"""One asyncio ZeroMQ socket: sending that never waits, receiving by one task.

Must not know messages. Invariant: `send` either hands all frames to ZeroMQ or none, and never waits in line
behind another send: a full peer must not hold up the rest.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import zmq

from digend.net.addresses import socket_path
from digend.net.handshake import EVENTS, event_of

CLOSE_MS = 2_000
_NOW, _NOW_AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""Numbers, because to combine flags takes longer than to send."""
_ALL = int(zmq.POLLIN | zmq.POLLOUT)
_NUMBERS = count()
"""Of watched sockets: ZeroMQ lets go of a name some time after its socket was closed."""


class Channel:
    """Owns the socket. `copy_threshold`: frames of at least so many bytes are sent without a copy. `context`: another
    than the process's.

    ZeroMQ's descriptor says once that something has happened, and any call on the socket may swallow it. So whoever
    waits looks at the socket's events, after the descriptor spoke and after every send; a plain socket and one callback
    take a third of the time that a queue of futures a message takes.
    """

    def __init__(
        self, socket_type: int, *, copy_threshold: int = 65536, context: "zmq.Context[Any] | None" = None
    ) -> None:
        self._context = context or zmq.Context.instance()
        self.socket: Any = zmq.Socket(self._context, socket_type)
        self.socket.copy_threshold = self._copy_threshold = copy_threshold
        self._monitor: Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """For which events."""
        self._looks = False

    def send(self, frames: list[Any], *, track: bool = False, copy: bool = False) -> Any:
        """The last frame's tracker where asked for. That frame is sent without a copy, unless `copy`; sharing memory
        with ZeroMQ takes longer than copying a routing id or a header.

        Raises zmq.Again (full, or nobody is connected), zmq.ZMQError (unroutable).
        """
        try:
            for frame in frames[:-1]:  # ZeroMQ takes all frames of a message whose first it has taken
                self.socket.send(frame, flags=_NOW_AND_MORE, copy=copy or len(frame) < self._copy_threshold)
            return self.socket.send(frames[-1], flags=_NOW, copy=copy, track=track)
        finally:
            if self._waiting and self._loop is not None and not self._looks:  # once for all that is sent in a row
                self._looks = True
                self._loop.call_soon(self._look)

    async def receive(self, *, copy: bool = True) -> list[Any] | None:
        """All frames of the next message; None once the socket is closed."""
        while await self._until(zmq.POLLIN):
            frames = self.receive_waiting(copy=copy)
            if frames is not None:
                return frames
        return None

    def receive_waiting(self, *, copy: bool = True) -> list[Any] | None:
        """A message that is there already, or None."""
        try:
            frames: list[Any] = self.socket.recv_multipart(flags=_NOW, copy=copy)
        except zmq.Again:
            return None
        return frames

    async def writable(self) -> bool:
        """Waits until somebody is connected and takes messages. False: the socket was closed."""
        return await self._until(zmq.POLLOUT)

    async def _until(self, events: int) -> bool:
        """Waits for one of these events. False: the socket was closed."""
        while not self.socket.closed:
            if self._look() & events:
                return True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
                self._loop.add_reader(self.socket.FD, self._look)
            news = self._loop.create_future()
            self._waiting.append((events, news))
            await news
        return False

    def _look(self) -> int:
        """What is possible now; who waits for it goes on. The only place that asks, since asking swallows the news for
        everybody."""
        self._looks = False
        events = _ALL if self.socket.closed else int(self.socket.get(zmq.EVENTS))
        if self._waiting:
            for wanted, news in self._waiting:
                if wanted & events and not news.done():
                    news.set_result(None)
            self._waiting = [each for each in self._waiting if not each[1].done()]
        return events

    def watch(self, events: int = EVENTS) -> None:
        """Keeps what happens to the connection for `events`. Before connect or bind."""
        address = f"inproc://watch-{next(_NUMBERS)}"
        self.socket.monitor(address, events)
        self._monitor = Channel(zmq.PAIR, context=self._context)
        self._monitor.socket.set(zmq.RCVHWM, 0)  # with a full pipe ZeroMQ's thread would wait, and all its sockets too
        self._monitor.socket.connect(address)

    async def events(self) -> AsyncIterator[int]:
        """What has happened to the connection since `watch` (`digend.net.handshake`), until `close`. One task."""
        while self._monitor is not None and (frames := await self._monitor.receive()) is not None:
            yield event_of(frames)

    @property
    def closed(self) -> bool:
        return bool(self.socket.closed)

    def close(self, linger_ms: int) -> None:
        """What was sent before gets `linger_ms` to leave, in the background."""
        if self.socket.closed:
            return
        self._look_away()
        self._end(linger_ms)

    def _end(self, linger_ms: int) -> None:
        """Whoever waits is told so by `_look`."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.socket.FD)
            self._loop.call_soon(self._look)
        self.socket.close(linger_ms)

    def _look_away(self) -> None:
        if self._monitor is not None:
            self.socket.disable_monitor()  # first: ZeroMQ would wait for a reader that is gone
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
        monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(zmq.EVENT_CLOSED, name)
        self.socket.unbind(self.socket.last_endpoint)
        monitor.poll(CLOSE_MS)
        self.socket.disable_monitor()  # before its reader goes: ZeroMQ's thread would wait for one for ever
        monitor.close(0)
        self._end(linger_ms)
        if path := socket_path(address):
            path.unlink(missing_ok=True)
