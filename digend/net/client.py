"""A client's end of the control plane: one request, one reply, blocking. Without asyncio, so that digenctl
starts fast.

Invariant: `request` returns the reply to this very request or raises, at the latest after the timeout.
"""

import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import zmq

from digend.net.addresses import resolve, socket_path
from digend.net.handshake import EVENTS, event_of, happening, unfinished
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, frame
from digend.wire.errors import NotAllowed
from digend.wire.protocol import Refused
from digend.wire.replies import ErrorReply

if TYPE_CHECKING:
    from digend.net.security import Security

T = TypeVar("T")
_NUMBERS = count()
"""Of monitors: ZeroMQ lets go of a name some time after its socket was closed."""


class Request(Protocol):
    """Any message of `digend.wire.verbs.FROM_CLIENT`."""

    @property
    def request(self) -> str: ...


class ClientError(Exception):
    """Why a request has no reply."""


class DriverUnreachable(ClientError):
    """Nobody answers at the address."""


class TimedOut(ClientError):
    """A driver is there and did not reply in time; the request may have been carried out."""


class NotAdmitted(ClientError):
    """The driver refused our key, or wants one."""


class RequestFailed(ClientError):
    """The driver said no. `code` is the exit code to end with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Client:
    """One connection; requests one after another, from one thread. Also a context manager."""

    def __init__(
        self, address: str, timeout_s: float = 10.0, *, base: Path | None = None, security: "Security | None" = None
    ) -> None:
        """Does not wait for the driver. Raises BadAddress (NeedsKeys)."""
        self.address = resolve(address, base, keyed=security is not None)
        self._timeout_s = timeout_s
        self._key: str | None = None
        self._trouble = ""
        self._replies: set[type] = {ErrorReply, Refused}
        """And what was ever expected here, because a reply may be late. Not all that a driver may send, because its
        classes take longer to make than an answer."""
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._monitor: zmq.Socket[bytes] | None = None
        prepare_dealer(self._socket, self.address)
        if self.address.startswith("tcp://"):
            if security:
                security.as_client(self._socket, security.driver)
                self._key = security.key.public
            self._monitor = self._socket.get_monitor_socket(EVENTS, f"inproc://client-{next(_NUMBERS)}")
        self._socket.connect(self.address)

    def request(self, message: Request, expect: type[T]) -> T:
        """The reply, an `expect`. Raises ClientError as above, or ProtocolError (such as WrongProtocol)."""
        data = frame(message)
        self._replies.add(expect)
        deadline = time.monotonic() + self._timeout_s
        self._send(data, deadline)
        while self._wait(zmq.POLLIN, deadline):
            reply = decode(self._socket.recv_multipart()[-1], self._replies)
            if _answers(reply, message):
                return _expected(reply, expect)
        raise TimedOut(f"the driver at {self.address} did not reply within {self._timeout_s:g} s")

    def close(self) -> None:
        if self._monitor:
            self._socket.disable_monitor()  # first: ZeroMQ would wait for a reader that is gone
            self._monitor.close(0)
            self._monitor = None
        self._socket.close(0)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _send(self, data: bytes, deadline: float) -> None:
        """Raises DriverUnreachable. Never waits in ZeroMQ, which knows no deadline: who was there may go just then."""
        while self._wait(zmq.POLLOUT, deadline):
            with suppress(zmq.Again):
                self._socket.send(data, zmq.NOBLOCK)
                return
        why = self._trouble or _why_silent(self.address)
        raise DriverUnreachable(f"{why} (waited {self._timeout_s:g} s)")

    def _wait(self, events: int, deadline: float) -> bool:
        """Whether the socket is ready in time. Raises NotAdmitted."""
        poller = zmq.Poller()
        poller.register(self._socket, events)
        if self._monitor:
            poller.register(self._monitor, zmq.POLLIN)
        while (remaining_ms := (deadline - time.monotonic()) * 1000) > 0:
            ready = dict(poller.poll(int(remaining_ms) + 1))
            if self._socket in ready:
                return True
            if self._monitor and self._monitor in ready:
                self._look(event_of(self._monitor.recv_multipart()))
        return False

    def _look(self, event: int) -> None:
        found = happening(event, self.address, self._key)
        if found.refused:
            raise NotAdmitted(found.refused)
        if found.unfinished:
            self._trouble = unfinished(self.address, self._key is not None)


def _why_silent(address: str) -> str:
    path = socket_path(address)
    if path is not None and not path.exists():
        return f"no driver at {address}: there is no such socket"
    return f"no driver answers at {address}"


def _answers(reply: object, message: Request) -> bool:
    """Late replies to earlier requests are skipped; a refusal of something unreadable can only be ours."""
    return isinstance(reply, Refused) or getattr(reply, "request", None) in (message.request, "")


def _expected(reply: object, expect: type[T]) -> T:
    if isinstance(reply, expect):
        return reply
    if isinstance(reply, ErrorReply):
        raise RequestFailed(reply.code, reply.message)
    if isinstance(reply, Refused):
        raise RequestFailed(1, reply.reason)
    raise NotAllowed(type(reply).__name__)
