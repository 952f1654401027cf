"""A worker's link: connects again, and keeps nothing for the next driver."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from digend.net.addresses import BadAddress
from digend.net.link import Link
from digend.net.server import SMALL_BYTES, ControlServer
from digend.wire.codec import frame
from digend.wire.errors import Malformed, NotAllowed, TooLarge
from digend.wire.protocol import MAX_MESSAGE_BYTES
from digend.wire.workers import Goodbye, Heartbeat, HeartbeatAck
from tests.net.noise import noise

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def test_both_ways(server: ControlServer) -> None:
    link = Link.connect(server.address)
    await link.connected()
    assert link.send(Heartbeat(session="s", seq=3))
    peer, message = await anext(server.messages())
    assert message == Heartbeat(session="s", seq=3)
    assert server.send(peer, HeartbeatAck(session="s", seq=3))
    assert await anext(link.messages()) == HeartbeatAck(session="s", seq=3)
    link.close()


async def test_several_messages_in_one_come_one_after_another(server: ControlServer) -> None:
    link = Link.connect(server.address)
    await link.connected()
    assert link.send(Heartbeat(session="s", seq=0))
    peer, _ = await anext(server.messages())
    acks = [HeartbeatAck(session="s" * size, seq=seq) for seq, size in enumerate((1, 3, 2 * SMALL_BYTES, 2))]
    assert server.send_frames(peer, [frame(ack) for ack in acks[:2]])
    assert server.send_frames(peer, [frame(ack) for ack in acks[2:]])
    received = link.messages()
    assert [await anext(received) for _ in acks] == acks
    assert not server.send_frames(b"nobody", [frame(ack) for ack in acks])
    link.close()


async def test_relative_addresses_have_a_base(server: ControlServer, folder: Path) -> None:
    link = Link.connect("ipc://driver.sock", base=folder)
    await link.connected()
    link.close()


async def test_nobody_there_is_told_at_once(folder: Path) -> None:
    link = Link.connect(f"ipc://{folder}/nobody.sock")
    assert link.send(Heartbeat(session="s", seq=1)) is False
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.connected(), 0.1)
    link.close()


async def test_the_next_driver_hears_nothing_meant_for_the_last(folder: Path, until: Until) -> None:
    address = f"ipc://{folder}/d.sock"
    first = await ControlServer.bind(address)
    link = Link.connect(address)
    await link.connected()
    first.close(0)
    await until(lambda: not link.send(Heartbeat(session="old", seq=1)))
    second = await ControlServer.bind(address)
    await asyncio.wait_for(link.connected(), 10)
    assert link.send(Heartbeat(session="new", seq=2))
    assert (await anext(second.messages()))[1] == Heartbeat(session="new", seq=2)
    link.close()
    second.close()


async def test_sending_does_not_lose_what_arrives(server: ControlServer, until: Until) -> None:
    """Both directions at full speed: each side's notifications are consumed by the other's calls."""
    link = Link.connect(server.address)
    await link.connected()
    count = 2000

    async def echo() -> None:
        async for peer, message in server.messages():
            assert isinstance(message, Heartbeat)
            assert server.send(peer, HeartbeatAck(session="s", seq=message.seq))

    async def collect() -> list[int]:
        seqs: list[int] = []
        async for message in link.messages():
            assert isinstance(message, HeartbeatAck)
            seqs.append(message.seq)
            if len(seqs) == count:
                break
        return seqs

    echoing, collecting = asyncio.create_task(echo()), asyncio.create_task(collect())
    for seq in range(count):
        await until(lambda seq=seq: link.send(Heartbeat(session="s", seq=seq)))  # type: ignore[misc]
        if seq % 10 == 0:
            await asyncio.sleep(0)
    assert await asyncio.wait_for(collecting, 30) == list(range(count))
    server.close(0)
    await echoing
    link.close()


async def test_what_is_no_message_is_given_as_an_error(folder: Path) -> None:
    router = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
    router.bind(f"ipc://{folder}/d.sock")
    link = Link.connect(f"ipc://{folder}/d.sock")
    await link.connected()
    assert link.send(Goodbye(session="s", reason="tea"))
    peer, data = await router.recv_multipart()
    for frames in ([b"\xc1"], [b"a", data]):
        await router.send_multipart([peer, *frames])
    received = link.messages()
    kinds = [type(await anext(received)) for _ in range(3)]
    assert kinds == [Malformed, Malformed, NotAllowed]
    link.close()
    router.close(0)


async def test_a_message_over_the_limit_is_not_sent(server: ControlServer) -> None:
    link = Link.connect(server.address)
    with pytest.raises(TooLarge):
        link.send(Goodbye(session="s", reason=noise(2 * MAX_MESSAGE_BYTES)))
    link.close()


async def test_a_bad_address_is_refused_before_a_socket_is_made() -> None:
    with pytest.raises(BadAddress):
        Link.connect("tcp://10.0.0.1:1")


async def test_what_was_said_before_close_arrives(server: ControlServer) -> None:
    link = Link.connect(server.address)
    await link.connected()
    for number in range(20):
        assert link.send(Goodbye(session=str(number), reason="x" * 200_000))
    link.close(10_000)
    received = server.messages()
    for number in range(20):
        _, message = await anext(received)
        assert isinstance(message, Goodbye)
        assert message.session == str(number)


async def test_one_at_a_time_never_stalls(server: ControlServer) -> None:
    """Each side sends while it waits to receive: the send must not swallow the news of what has arrived."""
    link = Link.connect(server.address)
    await link.connected()

    async def echo() -> None:
        async for peer, message in server.messages():
            assert isinstance(message, Heartbeat)
            assert server.send(peer, HeartbeatAck(session="s", seq=message.seq))

    echoing = asyncio.create_task(echo())
    received = link.messages()
    async with asyncio.timeout(30):
        for seq in range(1000):
            waiting = asyncio.ensure_future(anext(received))
            await asyncio.sleep(0)
            assert link.send(Heartbeat(session="s", seq=seq))
            assert await waiting == HeartbeatAck(session="s", seq=seq)
    server.close(0)
    await echoing
    link.close()


async def test_closing_ends_the_iteration(server: ControlServer) -> None:
    link = Link.connect(server.address)
    reader = asyncio.create_task(anext(link.messages(), None))
    await asyncio.sleep(0)
    link.close()
    assert await asyncio.wait_for(reader, 5) is None
