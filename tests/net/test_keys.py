"""Keys on real sockets: who gets in, whose each message is, and what its role lets it say."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from digend.config.keyfiles import Z85, is_key
from digend.net.client import Client, DriverUnreachable, NotAdmitted
from digend.net.link import Link
from digend.net.server import ControlServer, Fault
from digend.net.turned_away import KEPT_S, MAX_KEYS, TurnedAway
from digend.wire.codec import encode
from digend.wire.errors import Malformed, NotAllowed, NotListed
from digend.wire.protocol import PROTOCOL, Refused
from digend.wire.replies import NodeList
from digend.wire.requests import ClientHello, ListNodes
from digend.wire.verbs import FROM_CLIENT, FROM_ROLE, FROM_WORKER, TO_DRIVER
from digend.wire.workers import Heartbeat, HeartbeatAck, TaskDone
from tests.net.keyed import LOCAL, ROLES, Keys, Told

BEAT = Heartbeat(session="s", seq=1)


def z85_of(data: bytes) -> str:
    return str(z85.encode(data).decode())


@pytest.fixture
async def server(keys: Keys, told: Told) -> AsyncIterator[ControlServer]:
    server = await ControlServer.bind(LOCAL, security=keys.of("box-a"), refused=told)
    yield server
    server.close(0)


async def _next(server: ControlServer) -> tuple[bytes, Any]:
    async with asyncio.timeout(60):
        return await anext(server.messages())


async def _last(link: Link) -> object:
    """What the driver says first, which is all where it lets nobody in."""
    async with asyncio.timeout(60):
        return await anext(link.messages())


async def _said(server: ControlServer, keys: Keys, name: str, data: bytes) -> Any:
    """What comes of bytes that were sent with a key."""
    link = Link.connect(server.address, security=keys.of(name))
    await link.connected()
    link._channel.send([data])
    _, item = await _next(server)
    link.close(0)
    return item


async def test_a_listed_key_gets_in_and_is_known_by_each_message(keys: Keys, server: ControlServer) -> None:
    link = Link.connect(server.address, security=keys.of("box-b"))
    await link.connected()
    assert link.send(BEAT)
    peer, message = await _next(server)
    assert message == BEAT
    assert server.encrypted
    grant = server.grant(peer)
    assert grant is not None
    assert (grant.name, grant.public) == ("box-b", keys.pairs["box-b"].public)
    assert server.send(peer, HeartbeatAck(session="s", seq=1))
    assert await _last(link) == HeartbeatAck(session="s", seq=1)
    link.close(0)


async def test_an_unlisted_key_is_told_and_named(keys: Keys, server: ControlServer, told: Told) -> None:
    stranger = keys.stranger()
    for _ in range(3):
        link = Link.connect(server.address, security=stranger)
        last = await _last(link)
        assert isinstance(last, Refused)
        assert last.fatal
        assert last.reason.endswith(f"refused the key {stranger.key.public}: it is not in the list there (keys.toml)")
        assert link.send(BEAT) is False
        link.close(0)
    assert told.refused == [(stranger.key.public, "127.0.0.1")], "told once"


async def test_a_flood_of_strangers_is_told_a_few_times(keys: Keys, server: ControlServer, told: Told) -> None:
    links = [Link.connect(server.address, security=keys.stranger()) for _ in range(15)]
    for link in links:
        assert isinstance(await _last(link), Refused)
        link.close(0)
    assert len(told.refused) == 10


async def test_a_wrong_driver_key_is_suspected_and_tried_again(keys: Keys, server: ControlServer) -> None:
    mistaken = Keys()  # another cluster's list
    link = Link.connect(server.address, security=mistaken.of("box-b"))
    reading = asyncio.create_task(_last(link))
    async with asyncio.timeout(60):
        while not link.trouble:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert link.trouble.endswith("ends every handshake: is the key of its role in keys.toml the one that it has?")
    assert not reading.done(), "a driver that is about to begin looks the same"
    reading.cancel()
    link.close(0)
    with (
        pytest.raises(DriverUnreachable, match="is the key of its role"),
        Client(server.address, 1.0, security=mistaken.of("ada")) as client,
    ):
        await asyncio.to_thread(client.request, ListNodes(request="r"), NodeList)


async def test_the_driver_says_who_did_not_get_in(keys: Keys) -> None:
    suspicions: list[str] = []
    server = await ControlServer.bind(LOCAL, security=keys.of("box-a"), suspected=suspicions.append)
    stranger = keys.stranger()
    assert server.turned_away() == ()
    link = Link.connect(server.address, security=stranger)
    assert isinstance(await _last(link), Refused)
    link.close(0)
    assert [stranger.key.public in line and "127.0.0.1" in line for line in server.turned_away()] == [True]
    mistaken = Link.connect(server.address, security=Keys().of("box-b"))
    reading = asyncio.create_task(_last(mistaken))
    async with asyncio.timeout(60):
        while len(server.turned_away()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "another key of the driver" in server.turned_away()[1]
    assert len(suspicions) == 1, "said once"
    reading.cancel()
    mistaken.close(0)
    link = Link.connect(server.address, security=keys.of("box-b"))
    await link.connected()
    assert link.send(BEAT)
    assert (await _next(server))[1] == BEAT
    link.close(0)
    server.close(0)


def test_who_was_turned_away_is_forgotten_and_bounded() -> None:
    away = TurnedAway()
    for number in range(50):
        away.refused(f"key{number}", "10.0.0.2", float(number))
    assert len(away.words(50.0)) == MAX_KEYS
    assert [away.broke_off(60.0) for _ in range(5)] == [False, False, True, False, False]
    assert away.words(61.0)[-1].startswith("5 handshakes failed")
    assert away.words(60.0 + KEPT_S) == ()
    for _ in range(2000):
        away.broke_off(1000.0)
    assert away.words(1000.0)[0].startswith("1000 or more handshakes failed")


@pytest.mark.parametrize("keyed_side", ["driver", "worker"])
async def test_keys_on_one_side_only(keys: Keys, server: ControlServer, keyed_side: str) -> None:
    plain = await ControlServer.bind(LOCAL)
    keyed = keyed_side == "driver"
    link = Link.connect(server.address) if keyed else Link.connect(plain.address, security=keys.of("box-b"))
    last = await _last(link)
    assert isinstance(last, Refused)
    assert last.fatal
    assert ("wants keys" if keyed else "takes no keys") in last.reason
    link.close(0)
    plain.close(0)


async def test_a_client_is_told_that_its_key_is_not_listed(keys: Keys, server: ControlServer) -> None:
    with (
        pytest.raises(NotAdmitted, match="is not in the list there"),
        Client(server.address, 10.0, security=keys.stranger()) as client,
    ):
        await asyncio.to_thread(client.request, ListNodes(request="r"), NodeList)
    with pytest.raises(NotAdmitted, match="wants keys"), Client(server.address, 10.0) as client:
        await asyncio.to_thread(client.request, ListNodes(request="r"), NodeList)


@pytest.mark.parametrize("name", ROLES)
async def test_each_key_says_what_its_roles_may_say_and_no_more(keys: Keys, name: str, server: ControlServer) -> None:
    """The fields are no fields, so that only what is not even looked at is refused for its name."""
    may = frozenset().union(*(FROM_ROLE[role] for role in ROLES[name]))
    for message in sorted(TO_DRIVER, key=lambda cls: cls.__name__):
        fault = await _said(server, keys, name, msgpack.packb([PROTOCOL, message.__name__, b"no zlib"]))
        assert isinstance(fault, Fault)
        assert type(fault.error) is (Malformed if message in may else NotAllowed), message.__name__
        if message not in may:
            assert str(fault.error).startswith(f"a {message.__name__} message is not accepted from the key of {name} (")


def test_roles_have_their_verbs_and_not_those_of_others() -> None:
    assert FROM_ROLE["client"] == FROM_CLIENT
    names = {role: {cls.__name__ for cls in verbs} for role, verbs in FROM_ROLE.items()}
    for role in ("generator", "trainer", "reward", "recorder", "driver"):
        assert FROM_ROLE[role] & FROM_CLIENT == {ClientHello, ListNodes}, role
        assert not names[role] & {"Submit", "Cancel", "Upload"}
    assert "RecordsWritten" not in names["generator"] | names["trainer"] | names["reward"]
    assert not names["recorder"] & {"TaskDone", "Staged"}
    assert not FROM_ROLE["client"] & FROM_WORKER
    assert frozenset().union(*FROM_ROLE.values()) == TO_DRIVER


async def test_a_role_of_a_session_limits_its_peer_without_keys_too() -> None:
    server = await ControlServer.bind(LOCAL)
    roles: dict[bytes, str] = {}
    server.limit(roles.get)
    link = Link.connect(server.address)
    await link.connected()
    link.send(BEAT)
    peer, _ = await _next(server)
    roles[peer] = "recorder"
    link._channel.send([encode(ListNodes(request="r"))])
    assert (await _next(server))[1] == ListNodes(request="r")
    link._channel.send([msgpack.packb([PROTOCOL, TaskDone.__name__, {}])])
    fault = (await _next(server))[1]
    assert str(fault.error) == "a TaskDone message is not accepted from a recorder"
    link.close(0)
    server.close(0)


async def test_a_key_that_is_taken_off_the_list_says_nothing_more(keys: Keys) -> None:
    security = keys.of("box-a")
    server = await ControlServer.bind(LOCAL, security=security)
    link = Link.connect(server.address, security=keys.of("box-b"))
    await link.connected()
    link.send(BEAT)
    assert (await _next(server))[1] == BEAT
    security._grants = keys.grants("box-b")
    link.send(BEAT)
    _, fault = await _next(server)
    assert isinstance(fault, Fault)
    assert isinstance(fault.error, NotListed)
    link.close(0)
    again = Link.connect(server.address, security=keys.of("box-b"))
    assert isinstance(await _last(again), Refused)
    again.close(0)
    server.close(0)


class Tap:
    """Passes bytes on between a consumer and a server, and keeps them."""

    def __init__(self, target: str) -> None:
        self.seen = bytearray()
        self._target = int(target.rpartition(":")[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
        self._pass(far, near)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # whoever ends first ends both
            while data := source.recv(65536):
                self.seen += data
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("encrypted", [True, False])
async def test_what_is_said_cannot_be_read_on_the_way(keys: Keys, encrypted: bool) -> None:
    server = await ControlServer.bind(LOCAL, security=keys.of("box-a") if encrypted else None)
    tap = Tap(server.address)
    link = Link.connect(tap.address, security=keys.of("box-b") if encrypted else None)
    await link.connected()
    link.send(Heartbeat(session="a-secret-session", seq=1))
    peer, _ = await _next(server)
    server.send(peer, Refused(reason="a-secret-reason"))
    await _last(link)
    assert (b"a-secret-session" in tap.seen) is not encrypted
    assert (b"a-secret-reason" in tap.seen) is not encrypted
    link.close(0)
    server.close(0)
    tap.close()


# ---------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("host", ["[::1]", "lo", "*", "localhost"])
async def test_any_kind_of_host_is_served_with_keys(keys: Keys, host: str) -> None:
    server = await ControlServer.bind(f"tcp://{host}", security=keys.of("box-a"))
    port = server.address.rpartition(":")[2]
    name = "127.0.0.1" if host == "lo" else host
    link = Link.connect(f"tcp://{name}:{port}", security=keys.of("box-b"))
    async with asyncio.timeout(60):
        await link.connected()
    assert link.send(BEAT)
    assert (await _next(server))[1] == BEAT
    link.close(0)
    server.close(0)


@given(text=st.text(alphabet=Z85 + '"~', min_size=39, max_size=41) | st.binary(min_size=32, max_size=32).map(z85_of))
def test_what_is_taken_for_a_key_is_one_for_zeromq(text: str) -> None:
    try:
        is_key(text)
    except ValueError:
        with contextlib.suppress(ValueError, KeyError, struct.error):
            assert z85_of(z85.decode(text)) != text or len(text) != 40
    else:
        assert z85_of(z85.decode(text)) == text
