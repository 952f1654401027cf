"""The record stream: window, sizes, and where it goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.commands import Write
from broker.events import Tick
from daemons.driver.archive import Archive
from daemons.driver.journal import JobRow, Journal, Turn
from daemons.driver.stream import BATCH_RECORDS, WINDOW, RecordStream
from digend.telemetry.summary import summarise
from digend.wire.codec import encode
from digend.wire.protocol import MAX_MESSAGE_BYTES
from digend.wire.records import JobState, Notice, Record
from digend.wire.workers import Records


class World:
    """A journal with a stream on it; what was sent is kept."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path)
        self.journal.begin(now_ns=0)
        self.sent: list[Records] = []
        self.configs: dict[str, str] = {}
        self.stream = self.opened()

    def opened(self) -> RecordStream:
        return RecordStream(Archive(self.journal), self.configs, lambda session, message: self.sent.append(message))

    def write(self, job: str, count: int, size: int = 0) -> None:
        row = () if job in self.configs else (JobRow(id=job, digest="d", toml="toml"),)
        self.configs[job] = "toml"
        start = Archive(self.journal).next_seqs().get(job, 0)
        records = [
            Record(job=job, seq=seq, at_ns=0, body=JobState(state="queued", reason="x" * size))
            for seq in range(start, start + count)
        ]
        commands = tuple(Write(record=record) for record in records)
        self.journal.commit(Turn(now_ns=1, events=(Tick(),), commands=commands, jobs=row))
        for record in records:
            self.stream.appended(record)

    def seqs(self, job: str) -> list[int]:
        return [record.seq for message in self.sent for record in message.records if record.job == job]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "j.sqlite")
    yield made
    made.journal.close()


def test_nothing_is_sent_without_a_recorder(world: World) -> None:
    world.write("a", 5)
    world.stream.pump()
    assert world.sent == []


def test_everything_is_sent_in_order_with_the_job_file_at_the_front(world: World) -> None:
    world.write("a", 3)
    world.stream.attach("s", {})
    world.stream.pump()
    world.write("a", 2)
    world.stream.pump()
    assert world.seqs("a") == [0, 1, 2, 3, 4]
    assert [message.configs for message in world.sent] == [{"a": "toml"}, {}]
    assert {message.session for message in world.sent} == {"s"}


def test_at_most_a_window_of_batches_is_on_its_way(world: World) -> None:
    world.write("a", BATCH_RECORDS * (WINDOW + 2))
    world.stream.attach("s", {})
    world.stream.pump()
    assert len(world.sent) == WINDOW
    world.stream.written("s", "a", BATCH_RECORDS - 1)
    world.stream.pump()
    assert len(world.sent) == WINDOW
    world.stream.written("s", "a", BATCH_RECORDS)
    world.stream.pump()
    assert len(world.sent) == WINDOW + 1
    world.stream.written("s", "a", BATCH_RECORDS * (WINDOW + 1))
    world.stream.pump()
    assert world.seqs("a") == list(range(BATCH_RECORDS * (WINDOW + 2)))


def test_a_new_recorder_gets_what_it_has_not_written(world: World) -> None:
    world.write("a", 5)
    world.write("b", 5)
    world.stream.attach("s1", {})
    world.stream.pump()
    world.sent.clear()
    world.stream.written("s0", "a", 5)  # another session's word does not count
    world.stream.attach("s2", {"a": 3})
    world.stream.pump()
    assert (world.seqs("a"), world.seqs("b")) == ([3, 4], [0, 1, 2, 3, 4])


def test_messages_fit_whatever_the_size_of_records(world: World) -> None:
    world.write("a", 30, size=60_000)
    world.write("b", 1, size=300_000)
    world.stream.attach("s", {})
    for _ in range(40):
        world.stream.pump()
        for message in world.sent:
            world.stream.written("s", message.records[-1].job, message.records[-1].seq + 1)
    assert world.seqs("a") == list(range(30))
    assert all(len(encode(message)) <= MAX_MESSAGE_BYTES for message in world.sent)
    (placeholder,) = [message.records[0] for message in world.sent if message.records[0].job == "b"]
    assert isinstance(placeholder.body, Notice)


def test_jobs_that_ended_and_were_written_are_not_told_again(world: World) -> None:
    world.write("a", 3)
    world.write("b", 3)
    world.journal.commit(Turn(now_ns=1, events=(), commands=(), persisted=(("a", 3), ("b", 2))))
    details = [summarise([Record(job=job, seq=0, at_ns=0, body=JobState(state="completed"))]) for job in "ab"]
    world.journal.begin(now_ns=2, finished=details)
    world.stream = world.opened()
    world.stream.attach("s", {})
    world.stream.pump()
    assert (world.seqs("a"), world.seqs("b")) == ([], [0, 1, 2])
    world.stream.attach("s", {"a": 1})
    world.stream.pump()
    assert world.seqs("a") == [1, 2]
