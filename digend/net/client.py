"""A client's end of the control plane: one request, one reply, blocking. Without asyncio, so that digenctl
starts fast.

Invariant: `request` returns the reply to this very request or raises, at the latest after the timeout.
"""

import time
from pathlib import Path
from typing import Protocol, TypeVar

import zmq

from digend.net.addresses import resolve
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, frame
from digend.wire.errors import NotAllowed
from digend.wire.messages import ErrorReply, Refused
from digend.wire.verbs import TO_CLIENT

T = TypeVar("T")


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


class RequestFailed(ClientError):
    """The driver said no. `code` is the exit code to end with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Client:
    """One connection; requests one after another, from one thread. Also a context manager."""

    def __init__(self, address: str, timeout_s: float = 10.0, *, base: Path | None = None) -> None:
        """Does not wait for the driver. Raises BadAddress."""
        self.address = resolve(address, base)
        self._timeout_s = timeout_s
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        prepare_dealer(self._socket)
        self._socket.connect(self.address)

    def request(self, message: Request, expect: type[T]) -> T:
        """The reply, an `expect`. Raises ClientError as above, or ProtocolError (such as WrongProtocol)."""
        data = frame(message)
        deadline = time.monotonic() + self._timeout_s
        if not self._wait(zmq.POLLOUT, deadline):
            raise DriverUnreachable(f"no driver answers at {self.address} (waited {self._timeout_s:g} s)")
        self._socket.send(data)
        while self._wait(zmq.POLLIN, deadline):
            reply = decode(self._socket.recv_multipart()[-1], TO_CLIENT)
            if _answers(reply, message):
                return _expected(reply, expect)
        raise TimedOut(f"the driver at {self.address} did not reply within {self._timeout_s:g} s")

    def close(self) -> None:
        self._socket.close(0)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _wait(self, events: int, deadline: float) -> bool:
        remaining_ms = (deadline - time.monotonic()) * 1000
        return bool(remaining_ms > 0 and self._socket.poll(int(remaining_ms) + 1, events))


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
