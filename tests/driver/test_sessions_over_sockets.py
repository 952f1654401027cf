"""HELLO, sessions, garbage and other versions, over real sockets."""

import asyncio
from pathlib import Path

import msgpack
import pytest
import zmq

from digend import __version__
from digend.net.channel import Channel
from digend.net.claims import AddressInUse
from digend.net.sockets import prepare_dealer
from digend.wire.codec import decode, encode
from digend.wire.protocol import PROTOCOL, Refused
from digend.wire.replies import NodeList, VersionReply
from digend.wire.requests import ClientHello, ListNodes
from digend.wire.verbs import TO_CLIENT, TO_WORKER
from digend.wire.views import NodeView
from digend.wire.workers import Assign, Goodbye, Heartbeat, HeartbeatAck, Versions, Welcome
from tests.driver.fakes import FakePeer, FakeWorker, living
from tests.driver.world import Client, client_of, job_config, node_of, running


class Raw:
    """A socket that sends whatever bytes it is given."""

    def __init__(self, address: str) -> None:
        self._channel = Channel(zmq.DEALER)
        prepare_dealer(self._channel.socket, address)
        self._channel.socket.connect(address)

    async def send(self, *frames: bytes) -> None:
        await self._channel.writable()
        self._channel.send(list(frames))

    async def receive(self) -> object:
        async with asyncio.timeout(60):
            frames = await self._channel.receive()
        assert frames is not None
        return decode(frames[0], TO_CLIENT | TO_WORKER)

    def close(self) -> None:
        self._channel.close(0)


async def nodes(client: Client) -> dict[str, NodeView]:
    reply = await client.ask(ListNodes(request=client.next_request()), NodeList)
    return {each.name: each for each in reply.nodes}


async def test_hello_is_welcomed_and_heartbeats_are_answered(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), living(FakePeer(node, "generator", "n/generator/0")) as peer, client_of(node) as client:
        (welcome,) = await peer.until(Welcome)
        assert (welcome.session, welcome.epoch, welcome.protocol) == ("s1.1", 1, PROTOCOL)
        assert welcome.heartbeat_s == node.timing.heartbeat_s
        acknowledged = await peer.until(HeartbeatAck, 2)
        assert [each.seq for each in acknowledged[:2]] == [1, 2]
        assert (await nodes(client))["n/generator/0"].session == "s1.1"


async def test_another_version_of_digend_is_refused_with_both_named(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    other = Versions(digend="9.9.9", python="3.11")
    async with running(node), living(FakePeer(node, "generator", "n/generator/0", versions=other)) as peer:
        (refused,) = await peer.until(Refused)
        assert refused.fatal
        assert "9.9.9" in refused.reason
        assert __version__ in refused.reason


async def test_another_protocol_is_refused_with_both_named(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node):
        raw = Raw(node.address)
        await raw.send(msgpack.packb([PROTOCOL + 7, "ClientHello", {"future": 1}]))
        refused = await raw.receive()
        raw.close()
        assert isinstance(refused, Refused)
        assert refused.fatal
        assert f"protocol {PROTOCOL + 7}" in refused.reason
        assert f"protocol {PROTOCOL}:" in refused.reason


async def test_garbage_gets_one_answer_and_hurts_nobody(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        raw = Raw(node.address)
        for garbage in (
            b"",
            b"\xff" * 100,
            msgpack.packb([PROTOCOL, "Hello", {}]),
            encode(Welcome(session="s", epoch=1, heartbeat_s=1)),
        ):
            await raw.send(garbage)
        await raw.send(b"two", b"frames")
        assert isinstance(await raw.receive(), Refused)
        # Its next true request is answered, and nothing else came in between.
        await raw.send(encode(ClientHello(request="r", digend=__version__)))
        assert isinstance(await raw.receive(), VersionReply)
        raw.close()
        reply = await client.ask(ClientHello(request=client.next_request(), digend=__version__), VersionReply)
        assert (reply.version.driver, reply.version.protocol) == (__version__, PROTOCOL)


async def test_a_session_that_is_unknown_is_refused_softly(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node):
        raw = Raw(node.address)
        await raw.send(encode(Heartbeat(session="s0.9", seq=1)))
        refused = await raw.receive()
        raw.close()
        assert refused == Refused(reason="unknown session", fatal=False)


async def test_the_same_process_greets_again_and_keeps_its_name(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), living(FakePeer(node, "generator", "n/generator/0")) as peer, client_of(node) as client:
        await peer.until(Welcome)
        await peer.greet()
        again = (await peer.until(Welcome, 2))[1]
        assert again.session == "s1.2"
        await peer.until(HeartbeatAck, 2)
        assert (await nodes(client))["n/generator/0"].session == "s1.2"
        assert not [each for each in peer.heard if isinstance(each, Refused)]


async def test_a_new_process_takes_the_name_over_and_the_old_one_must_end(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    name = "n/generator/0"
    async with running(node), living(FakePeer(node, "generator", name)) as old, client_of(node) as client:
        await old.until(Welcome)
        async with living(FakePeer(node, "generator", name, instance="i2", pid=77)) as new:
            (welcome,) = await new.until(Welcome)
            (refused,) = await old.until(Refused)
            assert refused.fatal
            assert "77" in refused.reason
            assert name in refused.reason
            assert (await nodes(client))[name].session == welcome.session


async def test_goodbye_ends_a_session(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), living(FakePeer(node, "generator", "n/generator/0")) as peer, client_of(node) as client:
        (welcome,) = await peer.until(Welcome)
        peer.link.send(Goodbye(session=welcome.session, reason="asked to stop"))
        # Its next heartbeat is of no session; it greets again and gets a new one.
        assert (await peer.until(Welcome, 2))[1].session == "s1.2"
        assert (await nodes(client))["n/generator/0"].session == "s1.2"


async def test_a_silent_worker_is_evicted(tmp_path: Path) -> None:
    node = node_of(tmp_path, torpid_s=0.2, lost_s=0.4)
    peer = FakePeer(node, "generator", "n/generator/0")
    async with running(node), client_of(node) as client:
        await peer.greet()  # and nothing after it
        async with asyncio.timeout(60):
            async for message in peer.link.messages():
                if isinstance(message, Refused):
                    break
        assert isinstance(message, Refused)
        assert message.reason.startswith("evicted: no heartbeat for")
        assert not message.fatal
        assert await nodes(client) == {}
    peer.link.close(0)


async def test_a_worker_whose_connection_is_gone_is_lost_when_it_is_sent_work(tmp_path: Path) -> None:
    node = node_of(tmp_path, torpid_s=60, lost_s=120)
    async with running(node), client_of(node) as client:
        async with living(FakePeer(node, "generator", "n/generator/0")) as peer:
            await peer.until(Welcome)
        async with living(FakeWorker(node, "trainer", "n/trainer")) as trainer:
            await trainer.until(Welcome)
            await client.submit(job_config())
            await trainer.until(Assign)
            assert set(await nodes(client)) == {"n/trainer"}


async def test_two_drivers_cannot_have_one_address(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node):
        with pytest.raises(AddressInUse, match=r"d\.sock"):
            async with running(node):
                pass
