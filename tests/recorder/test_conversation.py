"""The recorder's session, against a driver made of two queues."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from daemons.recorder.archive import Hole
from daemons.recorder.conversation import Identity, Recorder, RecorderTiming
from digend.exitcodes import ExitCode
from digend.wire.protocol import Refused
from digend.wire.records import Notice, Record
from digend.wire.workers import Goodbye, Heartbeat, HeartbeatAck, Hello, Records, RecordsWritten, Versions, Welcome

IDENTITY = Identity(name="n/recorder/0", node="n", instance="i", versions=Versions(digend="0", python="3"))
TIMING = RecorderTiming(lost_s=5.0, first_retry_s=0.01, last_retry_s=0.02, drain_s=2.0)


class Wire:
    """Both ends of a link in memory. `up` is False while no driver is there."""

    trouble = ""

    def __init__(self) -> None:
        self.up = True
        self.said: asyncio.Queue[object] = asyncio.Queue()
        self._heard: asyncio.Queue[object] = asyncio.Queue()

    async def connected(self) -> None:
        return None

    def send(self, message: object) -> bool:
        if self.up:
            self.said.put_nowait(message)
        return self.up

    async def messages(self) -> AsyncIterator[object]:
        while True:
            yield await self._heard.get()

    def say(self, message: object) -> None:
        self._heard.put_nowait(message)

    async def hear(self, kind: type, timeout_s: float = 3.0) -> object:
        """The next message of a kind; heartbeats are answered as a driver does."""
        async with asyncio.timeout(timeout_s):
            while True:
                message = await self.said.get()
                if isinstance(message, kind):
                    return message
                if isinstance(message, Heartbeat):
                    self.say(HeartbeatAck(session=message.session, seq=message.seq))


class Memory:
    """A store that keeps records in memory and fails when told to."""

    def __init__(self, next_seq: int = 0) -> None:
        self.next_seq = next_seq
        self.failures = 0
        self.caught_up = False
        self.wrote, self.failed = threading.Event(), threading.Event()

    def wanted(self) -> dict[str, int]:
        return {"j": self.next_seq}

    troubles: tuple[str, ...] = ()

    @property
    def trackers_up(self) -> Mapping[str, bool]:
        return {}

    def catch_up(self) -> list[str]:
        self.caught_up = True
        return []

    def write(self, records: Sequence[Record], configs: Mapping[str, str]) -> dict[str, int]:
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise OSError(28, "No space left on device")
        for record in records:
            if record.seq > self.next_seq:
                raise Hole(f"wants {self.next_seq}, got {record.seq}")
            self.next_seq = max(self.next_seq, record.seq + 1)
        self.wrote.set()
        return {"j": self.next_seq}


def batch(session: str, first: int, last: int) -> Records:
    records = tuple(
        Record(job="j", seq=seq, at_ns=seq, body=Notice(level="info", message=str(seq))) for seq in range(first, last)
    )
    return Records(session=session, records=records)


async def talk(
    script: Callable[[Wire, Memory, Recorder], Awaitable[None]],
    *,
    store: Memory | None = None,
    stop: bool = True,
    lost_s: float = 5.0,
) -> int:
    """Run a recorder beside a script that plays the driver; returns the exit code."""
    wire, memory = Wire(), store or Memory()
    recorder = Recorder(IDENTITY, wire, memory, replace(TIMING, lost_s=lost_s))
    running = asyncio.create_task(recorder.run())
    await script(wire, memory, recorder)
    if stop:
        recorder.ask_to_stop()
    return await asyncio.wait_for(running, 5.0)


async def join(wire: Wire, session: str = "s1") -> Hello:
    hello = await wire.hear(Hello)
    assert isinstance(hello, Hello)
    wire.say(Welcome(session=session, epoch=1, heartbeat_s=0.05))
    return hello


async def test_records_are_acknowledged_after_they_are_written() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        hello = await join(wire)
        assert (hello.role, hello.name, hello.written) == ("recorder", "n/recorder/0", {"j": 7})
        assert memory.caught_up
        wire.say(batch("s1", 7, 10))
        assert await wire.hear(RecordsWritten) == RecordsWritten(session="s1", job="j", next_seq=10)
        assert memory.next_seq == 10

    assert await talk(script, store=Memory(7)) == ExitCode.ASKED_TO_STOP


async def test_a_hole_is_asked_for_by_a_new_hello() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        wire.say(batch("s1", 0, 3))
        await wire.hear(RecordsWritten)
        wire.say(batch("s1", 5, 8))
        wire.say(batch("s1", 8, 9))
        assert (await join(wire, "s2")).written == {"j": 3}
        wire.say(batch("s2", 3, 9))
        assert await wire.hear(RecordsWritten) == RecordsWritten(session="s2", job="j", next_seq=9)

    await talk(script)


async def test_what_comes_twice_is_acknowledged_once_more() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        for _ in range(2):
            wire.say(batch("s1", 0, 3))
            assert await wire.hear(RecordsWritten) == RecordsWritten(session="s1", job="j", next_seq=3)

    await talk(script)


async def test_batches_of_an_older_session_are_dropped() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        wire.say(Refused(reason="unknown session"))
        await join(wire, "s2")
        wire.say(batch("s1", 0, 3))
        wire.say(batch("s2", 0, 2))
        assert await wire.hear(RecordsWritten) == RecordsWritten(session="s2", job="j", next_seq=2)

    await talk(script)


async def test_a_full_disk_holds_the_records_until_it_has_room() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        memory.failures = 8
        wire.say(batch("s1", 0, 3))
        wire.say(batch("s1", 3, 5))
        first = await wire.hear(RecordsWritten)
        assert memory.failures == 0
        assert first == RecordsWritten(session="s1", job="j", next_seq=3)
        assert await wire.hear(RecordsWritten) == RecordsWritten(session="s1", job="j", next_seq=5)

    await talk(script)


async def test_a_silent_driver_is_greeted_again() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        async with asyncio.timeout(3.0):
            while not isinstance(await wire.said.get(), Hello):
                pass
        wire.say(Welcome(session="s2", epoch=2, heartbeat_s=0.05))
        wire.say(batch("s2", 0, 1))
        await wire.hear(RecordsWritten)

    await talk(script, lost_s=0.3)


async def test_a_driver_that_was_away_hears_what_was_written() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        wire.say(batch("s1", 0, 1))
        await wire.hear(RecordsWritten)
        memory.wrote.clear()
        wire.up = False
        wire.say(batch("s1", 1, 3))
        assert await asyncio.to_thread(memory.wrote.wait, 3.0)
        wire.up = True
        assert await wire.hear(RecordsWritten) == RecordsWritten(session="s1", job="j", next_seq=3)

    await talk(script)


async def test_asked_to_stop_it_writes_what_it_has_and_says_goodbye() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        for first in range(0, 40, 10):
            wire.say(batch("s1", first, first + 10))
        await wire.hear(RecordsWritten)
        recorder.ask_to_stop()
        await wire.hear(Goodbye)
        assert memory.next_seq == 40

    assert await talk(script) == ExitCode.ASKED_TO_STOP


async def test_asked_to_stop_on_a_full_disk_it_stops() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        memory.failures = 10**9
        wire.say(batch("s1", 0, 3))
        assert await asyncio.to_thread(memory.failed.wait, 3.0)

    assert await talk(script) == ExitCode.ASKED_TO_STOP


async def test_asked_to_stop_before_a_driver_was_there() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await wire.hear(Hello)

    assert await talk(script) == ExitCode.ASKED_TO_STOP


async def test_refused_for_good_it_ends_with_78() -> None:
    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await wire.hear(Hello)
        wire.say(Refused(reason="other version", fatal=True))

    assert await talk(script, stop=False) == ExitCode.BAD_CONFIG


async def test_what_the_store_cannot_explain_ends_the_process() -> None:
    class Broken(Memory):
        def write(self, records: Sequence[Record], configs: Mapping[str, str]) -> dict[str, int]:
            raise ValueError("a job id that is no folder name")

    async def script(wire: Wire, memory: Memory, recorder: Recorder) -> None:
        await join(wire)
        wire.say(batch("s1", 0, 1))

    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        await talk(script, store=Broken(), stop=False)
