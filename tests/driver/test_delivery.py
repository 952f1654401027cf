"""Commands on their way out: the same fields as the messages, packed once, one message of ZeroMQ a worker."""

from dataclasses import fields
from typing import Any, cast, get_args, get_type_hints

import pytest

from broker.commands import AcknowledgeResult, Command, Evict, Free, RevokeLease, SendTask, WakeAt, Write
from broker.events import Event, TaskBroke
from daemons.driver import outbox, packing
from daemons.driver.delivery import Delivery
from daemons.driver.sessions import Sessions
from digend.net.server import ControlServer
from digend.wire.codec import decode
from digend.wire.protocol import Refused
from digend.wire.records import JobState, Record
from digend.wire.tasks import ResetTask
from digend.wire.verbs import TO_WORKER
from digend.wire.workers import Assign, FreeBlobs, ResultAck
from tests.driver.world import hello_of

TASK = SendTask(session="s1.1", lease="1.2", attempt=0, lease_s=60, task=ResetTask(job="j", incarnation=0))
DONE = AcknowledgeResult(session="s1.1", lease="1.1")


def packed(*commands: Command) -> list[tuple[Any, bytes]]:
    return [(command, packing.fields_of(command)) for command in commands]


class Sockets:
    """In the place of a control server: what was sent to whom, as messages."""

    def __init__(self, takes: bool = True) -> None:
        self.sent: list[tuple[bytes, list[object]]] = []
        self._takes = takes

    def send_frames(self, peer: bytes, frames: list[bytes]) -> bool:
        self.sent.append((peer, [decode(frame, TO_WORKER) for frame in frames]))
        return self._takes


class World:
    """Two workers, and what the shell is told."""

    def __init__(self, takes: bool = True) -> None:
        self.sockets, self.told, self.events = Sockets(takes), list[str](), list[Event]()
        sessions = Sessions(1)
        for name in ("a", "b"):
            sessions.open(name.encode(), hello_of("generator", f"n/generator/{name}"))
        self.delivery = Delivery(
            sessions,
            cast(ControlServer, self.sockets),
            lambda session: self.told.append(f"close {session.id}"),
            lambda session: self.told.append(f"lost {session.id}"),
            self.events.append,
        )


def test_commands_have_the_fields_of_their_messages() -> None:
    assert set(outbox.MESSAGES) == set(get_args(outbox.Carried))
    for command, message in outbox.MESSAGES.items():
        assert [each.name for each in fields(command)] == [each.name for each in fields(message)]
        assert get_type_hints(command) == get_type_hints(message)


def test_commands_that_were_packed_once_are_journalled_as_ever() -> None:
    record = Record(job="j", seq=3, at_ns=7, body=JobState(state="queued"))
    commands: tuple[Command, ...] = (DONE, Write(record=record), TASK, WakeAt(at_ns=5))
    several = [packing.fields_of(command) for command in commands]
    assert packing.press_commands(commands, several) == packing.press(commands)
    assert packing.record_row(several[1]) == packing.one(record)


def test_a_worker_gets_all_of_a_turn_at_once_and_in_order() -> None:
    world = World()
    other = Free(session="s1.2", blobs=("x",))
    world.delivery.deliver(packed(DONE, other, TASK, RevokeLease(session="gone", lease="0", reason="r")))
    assert world.sockets.sent == [
        (
            b"a",
            [
                ResultAck(session="s1.1", lease="1.1"),
                Assign(session="s1.1", lease="1.2", attempt=0, lease_s=60.0, task=TASK.task),
            ],
        ),
        (b"b", [FreeBlobs(session="s1.2", blobs=("x",))]),
    ]
    assert not world.told
    assert not world.events


def test_an_eviction_is_the_last_that_a_session_hears() -> None:
    world = World()
    world.delivery.deliver(packed(DONE, Evict(session="s1.1", reason="late"), TASK))
    assert world.sockets.sent == [
        (b"a", [ResultAck(session="s1.1", lease="1.1"), Refused(reason="evicted: late", fatal=False)])
    ]
    assert world.told == ["close s1.1"]


def test_who_takes_nothing_is_told_once() -> None:
    world = World(takes=False)
    world.delivery.deliver(packed(DONE, TASK))
    assert world.told == ["lost s1.1"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_task_that_is_too_large_fails_and_nothing_else_does(alone: bool) -> None:
    world = World()
    heavy = SendTask(session="s1.1", lease="9", attempt=0, lease_s=1, task=ResetTask(job="j" * 2**24, incarnation=0))
    world.delivery.deliver(packed(heavy) if alone else packed(DONE, heavy))
    assert [event.lease for event in world.events if isinstance(event, TaskBroke)] == ["9"]
    assert world.sockets.sent == ([] if alone else [(b"a", [ResultAck(session="s1.1", lease="1.1")])])
