"""The control server against bad peers: garbage, oversize, strangers, readers that do not read."""

import asyncio
import gc
import random
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from digend.net.link import Link
from digend.net.server import PEER_LIMIT_BYTES, ControlServer, Fault
from digend.net.sockets import MAX_FRAME_BYTES
from digend.wire.codec import decode, encode
from digend.wire.errors import Malformed, NotAllowed, TooLarge, WrongProtocol
from digend.wire.protocol import MAX_MESSAGE_BYTES, PROTOCOL, Refused
from digend.wire.requests import Upload
from digend.wire.workers import Heartbeat, HeartbeatAck, ResultAck, Welcome
from tests.net.noise import noise

Until = Callable[[Callable[[], bool]], Awaitable[None]]

BEAT = Heartbeat(session="s", seq=1)


@pytest.fixture
def peers(server: ControlServer) -> Iterator[Any]:
    """Makes plain DEALERs that know nothing of digend."""
    context = zmq.Context()
    made = []

    def peer(**options: int) -> Any:
        dealer = context.socket(zmq.DEALER)
        for name, value in options.items():
            dealer.setsockopt(getattr(zmq, name), value)
        dealer.connect(server.address)
        made.append(dealer)
        return dealer

    yield peer
    for dealer in made:
        dealer.close(0)
    context.term()


async def _next(server: ControlServer) -> tuple[bytes, Any]:
    return await anext(server.messages())


async def _until_sent(server: ControlServer, dealer: Any) -> bytes:
    """A message through: gives the peer's id."""
    dealer.send(encode(BEAT))
    peer, message = await _next(server)
    assert message == BEAT
    return peer


async def test_what_was_sent_together_arrives_as_one_batch_in_order(server: ControlServer, peers: Any) -> None:
    dealer = peers()
    peer = await _until_sent(server, dealer)
    for seq in range(5):
        dealer.send(encode(Heartbeat(session="s", seq=seq)))
    received: list[tuple[bytes, Any]] = []
    async for batch in server.batches():
        assert batch
        received += batch
        if len(received) == 5:
            break
    assert received == [(peer, Heartbeat(session="s", seq=seq)) for seq in range(5)]


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ([b""], Malformed),
        ([b"\xc1\xff"], Malformed),
        ([b"", encode(BEAT)], Malformed),
        ([encode(BEAT), encode(BEAT)], Malformed),
        ([encode(Welcome(session="s", epoch=1, heartbeat_s=1.0))], NotAllowed),
        ([msgpack.packb([PROTOCOL, "Pickle", {}])], NotAllowed),
        ([msgpack.packb([PROTOCOL + 1, "Heartbeat", {}])], WrongProtocol),
        ([bytes(MAX_MESSAGE_BYTES + 1)], TooLarge),
        ([bytes(MAX_FRAME_BYTES)], TooLarge),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_what_is_no_message_is_a_fault(server: ControlServer, peers: Any, frames: Any, error: type) -> None:
    dealer = peers()
    dealer.send_multipart(frames)
    peer, fault = await _next(server)
    assert isinstance(fault, Fault)
    assert type(fault.error) is error
    assert fault.peer == peer
    assert server.send(peer, Refused(reason=str(fault.error)))
    assert await _until_sent(server, dealer) == peer


async def test_a_frame_over_the_hard_limit_cuts_only_its_sender(
    server: ControlServer, peers: Any, until: Until
) -> None:
    good, bad = peers(), peers(RECONNECT_IVL=-1)
    peer = await _until_sent(server, good)
    bad_peer = await _until_sent(server, bad)
    bad.send(bytes(MAX_FRAME_BYTES + 1))
    await until(lambda: not server.send(bad_peer, HeartbeatAck(session="s", seq=1)))
    assert await _until_sent(server, good) == peer


async def test_fuzz_never_ends_the_server(server: ControlServer, peers: Any) -> None:
    rng = random.Random(7)
    seeds = [encode(BEAT), encode(Upload(request="r", digest="d", offset=0, size=4, data=b"abcd"))]
    dealer = peers()
    count = 400
    for _ in range(count):
        frames = [bytearray(rng.choice(seeds)) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
        for frame in frames:
            for _ in range(rng.randrange(6)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            del frame[rng.randrange(len(frame) + 1) :]
        dealer.send_multipart([bytes(frame) for frame in frames])
    faults = 0
    for _ in range(count):
        peer, item = await _next(server)
        faults += isinstance(item, Fault)
    assert faults > count // 2
    assert await _until_sent(server, dealer) == peer
    assert server.in_flight(peer) == 0


async def test_bytes_that_are_not_zeromq_do_not_matter() -> None:
    server = await ControlServer.bind("tcp://127.0.0.1")
    rng = random.Random(3)
    port = int(server.address.rpartition(":")[2])
    for data in [b"", b"GET / HTTP/1.1\r\n\r\n", *(rng.randbytes(size) for size in (1, 10, 64, 64, 64, 5000))]:
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(data)
    link = Link.connect(server.address)
    await link.connected()
    assert link.send(BEAT)
    async for _, item in server.messages():
        if item == BEAT:
            break
        assert isinstance(item, Fault)  # some bytes look like the greeting of ZeroMQ 2
    link.close(0)
    server.close(0)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_peers_that_come_and_go_leave_nothing_behind(server: ControlServer, until: Until) -> None:
    async def visit() -> None:
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(server.address)
        peer = await _until_sent(server, dealer)
        assert server.send(peer, HeartbeatAck(session="s", seq=1))
        dealer.close(0)
        context.term()
        await until(lambda: not server.send(peer, HeartbeatAck(session="s", seq=1)))
        assert server.in_flight(peer) == 0

    await visit()
    gc.collect()
    before = _open_files()
    for _ in range(20):
        await visit()
    gc.collect()
    assert _open_files() <= before + 2


async def test_a_stranger_is_unroutable(server: ControlServer) -> None:
    assert server.send(b"nobody", ResultAck(session="s", lease="l")) is False


async def test_a_message_over_the_limit_is_the_senders_mistake(server: ControlServer, peers: Any) -> None:
    peer = await _until_sent(server, peers())
    with pytest.raises(TooLarge):
        server.send(peer, Refused(reason=noise(2 * MAX_MESSAGE_BYTES)))


async def test_a_reader_that_does_not_read_is_held_back_in_bytes(
    server: ControlServer, peers: Any, until: Until
) -> None:
    slow, quick = peers(RCVHWM=1, RCVBUF=4096), peers()
    slow_peer, quick_peer = await _until_sent(server, slow), await _until_sent(server, quick)
    sent, padding = 0, noise(200_000)
    while server.send(slow_peer, Refused(reason=f"{sent:06d}" + padding)):
        sent += 1
        await asyncio.sleep(0)
    assert PEER_LIMIT_BYTES - 250_000 < server.in_flight(slow_peer) <= PEER_LIMIT_BYTES
    assert sent * 200_000 < 2 * PEER_LIMIT_BYTES
    assert server.send(quick_peer, HeartbeatAck(session="s", seq=9))
    assert quick.poll(5000)
    for number in range(sent):
        assert slow.poll(5000)
        assert decode(slow.recv(), {Refused}).reason.startswith(f"{number:06d}")
    await until(lambda: server.in_flight(slow_peer) == 0)
    assert server.send(slow_peer, HeartbeatAck(session="s", seq=9))


async def test_what_was_sent_before_close_arrives(server: ControlServer, peers: Any) -> None:
    dealer = peers()
    peer = await _until_sent(server, dealer)
    padding = noise(200_000)
    for number in range(20):
        assert server.send(peer, Refused(reason=f"{number:06d}" + padding))
    server.close(10_000)
    for number in range(20):
        assert dealer.poll(5000)
        assert decode(dealer.recv(), {Refused}).reason.startswith(f"{number:06d}")


async def test_closing_ends_the_iteration(folder: Path) -> None:
    server = await ControlServer.bind(f"ipc://{folder}/d.sock")

    async def read() -> int:
        return len([item async for item in server.messages()])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    server.close()
    assert await asyncio.wait_for(reader, 5) == 0


async def test_cancelling_the_reader_is_not_swallowed(server: ControlServer) -> None:
    async def read() -> None:
        async for _ in server.messages():
            pass

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
