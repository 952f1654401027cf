"""The blocking client: a reply or a reason, at the latest after the timeout."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
import zmq
import zmq.asyncio

from digend.exitcodes import ExitCode
from digend.net.addresses import BadAddress
from digend.net.client import Client, DriverUnreachable, RequestFailed, TimedOut
from digend.net.server import ControlServer
from digend.wire.codec import encode
from digend.wire.errors import Malformed, NotAllowed, ProtocolError, TooLarge, WrongProtocol
from digend.wire.protocol import MAX_MESSAGE_BYTES, PROTOCOL, Refused
from digend.wire.replies import Changed, ErrorReply, JobList, Uploaded
from digend.wire.requests import Cancel, ListJobs, Upload
from digend.wire.workers import Welcome
from tests.net.noise import noise

ASK = ListJobs(request="r1")
NONE = JobList(request="r1", jobs=())


async def _ask(server: ControlServer, *replies: object) -> JobList:
    """One request over a client in a thread; the server sends `replies`."""

    async def reply() -> None:
        peer, message = await anext(server.messages())
        assert message == ASK
        for item in replies:
            assert server.send(peer, item)

    replying = asyncio.create_task(reply())
    try:
        return await asyncio.to_thread(_request, server.address)
    finally:
        await replying


def _request(address: str) -> JobList:
    with Client(address, 5.0) as client:
        return client.request(ASK, JobList)


async def test_a_reply(server: ControlServer) -> None:
    assert await _ask(server, NONE) == NONE


def test_a_driver_that_goes_between_the_look_and_the_sending(folder: Path) -> None:
    """ZeroMQ itself would wait for ever."""
    address = f"ipc://{folder}/gone.sock"
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    router.bind(address)

    class Slow(Client):
        """The driver goes right after the first look."""

        def _wait(self, events: int, deadline: float) -> bool:
            found = super()._wait(events, deadline)
            if not router.closed:
                assert found
                router.close(0)
                while self._socket.poll(10, zmq.POLLOUT):
                    pass
            return found

    with Slow(address, 1.0) as client, pytest.raises(DriverUnreachable):
        client.request(ASK, JobList)


async def test_a_late_reply_to_an_earlier_request_is_skipped(server: ControlServer) -> None:
    stale = [JobList(request="r0", jobs=()), ErrorReply(request="r0", code=5, message="old")]
    assert await _ask(server, *stale, NONE) == NONE


@pytest.mark.parametrize("request_id", ["r1", ""])
async def test_an_error_reply(server: ControlServer, request_id: str) -> None:
    with pytest.raises(RequestFailed, match="no such job") as caught:
        await _ask(server, ErrorReply(request=request_id, code=ExitCode.NOT_FOUND, message="no such job"))
    assert caught.value.code == ExitCode.NOT_FOUND


async def test_a_refusal(server: ControlServer) -> None:
    with pytest.raises(RequestFailed, match="go away"):
        await _ask(server, Refused(reason="go away"))


@pytest.mark.parametrize(
    "reply", [Changed(request="r1", name="j", state="s", reason=""), Welcome(session="s", epoch=1, heartbeat_s=1.0)]
)
async def test_a_reply_of_another_kind(server: ControlServer, reply: object) -> None:
    with pytest.raises(NotAllowed, match=type(reply).__name__):
        await _ask(server, reply)


@pytest.mark.parametrize(
    ("reply", "error"),
    [(msgpack.packb([PROTOCOL + 1, "JobList", {}]), WrongProtocol), (b"\xc1", Malformed)],
    ids=["version", "garbage"],
)
async def test_a_driver_that_speaks_otherwise(folder: Path, reply: bytes, error: type[ProtocolError]) -> None:
    router = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
    router.bind(f"ipc://{folder}/d.sock")
    asking = asyncio.create_task(asyncio.to_thread(_request, f"ipc://{folder}/d.sock"))
    peer, data = await router.recv_multipart()
    assert data == encode(ASK)
    await router.send_multipart([peer, reply])
    with pytest.raises(error):
        await asking
    router.close(0)


def _timed(call: Callable[[], object], expected: type[Exception]) -> float:
    start = time.monotonic()
    with pytest.raises(expected):
        call()
    return time.monotonic() - start


def test_nobody_there_takes_about_the_timeout(folder: Path) -> None:
    with Client(f"ipc://{folder}/d.sock", 0.3) as client:
        assert 0.3 <= _timed(lambda: client.request(ASK, JobList), DriverUnreachable) < 3
    with Client("tcp://127.0.0.1:1", 0.3) as client:
        assert 0.3 <= _timed(lambda: client.request(ASK, JobList), DriverUnreachable) < 3


async def test_a_driver_that_does_not_reply_is_another_error(server: ControlServer) -> None:
    client = Client(server.address, 0.3)
    took = await asyncio.to_thread(_timed, lambda: client.request(ASK, JobList), TimedOut)
    assert 0.3 <= took < 3
    client.close()


def test_a_stopped_driver_is_unreachable(folder: Path) -> None:
    script = (
        "import sys, zmq; s = zmq.Context().socket(zmq.ROUTER); s.bind(sys.argv[1]); print('up', flush=True); s.recv()"
    )
    address = f"ipc://{folder}/d.sock"
    process = subprocess.Popen([sys.executable, "-c", script, address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # until it really has stopped
    with Client(address, 0.3) as client:
        assert _timed(lambda: client.request(ASK, JobList), DriverUnreachable) < 3
    process.kill()
    process.communicate()


async def test_several_requests_over_one_client(server: ControlServer) -> None:
    async def serve() -> None:
        async for peer, message in server.messages():
            assert isinstance(message, Cancel)
            server.send(peer, Changed(request=message.request, name=message.job, state="cancelled", reason=""))

    def ask() -> list[str]:
        with Client(server.address) as client:
            asked = [Cancel(request=f"r{number}", job=f"j{number}") for number in range(20)]
            return [client.request(message, Changed).name for message in asked]

    serving = asyncio.create_task(serve())
    assert await asyncio.to_thread(ask) == [f"j{number}" for number in range(20)]
    server.close(0)
    await serving


def test_what_is_too_large_or_elsewhere_is_refused_at_once(folder: Path) -> None:
    with pytest.raises(BadAddress):
        Client("tcp://example.org:5757")
    with Client(f"ipc://{folder}/d.sock") as client, pytest.raises(TooLarge):
        client.request(
            Upload(request="r", digest="d", offset=0, size=1, data=noise(2 * MAX_MESSAGE_BYTES).encode()), Uploaded
        )


def test_the_client_imports_little() -> None:
    script = (
        "import sys, digend.net.client; print([m for m in ('asyncio', 'numpy', 'torch', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
