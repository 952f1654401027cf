"""The journal alone: transactions, segments, lack of room, damage."""

import sqlite3
from pathlib import Path

import pytest

from broker.commands import Command, WakeAt, Write
from broker.events import DriverStarted, Tick, WorkerBeat
from daemons.driver import packing
from daemons.driver.archive import Archive
from daemons.driver.journal import KEPT_SEGMENTS, JobRow, Journal, Turn
from daemons.driver.schema import JournalFull, JournalUnusable
from digend.telemetry.summary import summarise
from digend.wire.records import JobState, Record


def turn(now_ns: int, *records: Record, jobs: tuple[JobRow, ...] = ()) -> Turn:
    events = (Tick(), WorkerBeat(session="s1.1", lease=None, done=now_ns))
    commands: list[Command] = [Write(record=record) for record in records]
    commands.append(WakeAt(at_ns=now_ns + 1))
    return Turn(now_ns=now_ns, events=events, commands=tuple(commands), jobs=jobs)


def record(seq: int, job: str = "a", reason: str = "") -> Record:
    return Record(job=job, seq=seq, at_ns=seq, body=JobState(state="queued", reason=reason))


def row(job: str) -> JobRow:
    return JobRow(id=job, digest="d", toml="t")


def test_batches_come_back_in_order_with_what_was_answered(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin(now_ns=5)
    turns = [turn(10), turn(20, record(0)), turn(20)]
    for each in turns:
        journal.commit(each)
    journal.close()
    again = Journal(tmp_path / "j.sqlite")
    found = list(again.batches())
    assert [(each.now_ns, each.events) for each in found] == [(each.now_ns, each.events) for each in turns]
    assert [each.commands for each in found] == [
        b.commands for b in Journal(tmp_path / "j.sqlite", read_only=True).batches()
    ]
    assert (again.epoch, again.now_ns, again.segment) == (1, 20, 1)
    again.begin(now_ns=30)
    assert (again.epoch, again.segment) == (2, 1)
    again.close()


def test_a_turn_stands_or_falls_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin(now_ns=0)
    journal.commit(turn(1, record(0), jobs=(row("a"),)))
    with pytest.raises(JournalUnusable, match="UNIQUE"):
        journal.commit(turn(2, record(1), record(0), jobs=(row("b"),)))
    archive = Archive(journal)
    assert [each.id for each in archive.jobs()] == ["a"]
    assert archive.next_seqs() == {"a": 1}
    assert [each.now_ns for each in journal.batches()] == [1]
    journal.commit(turn(3, record(1)))
    assert archive.next_seqs() == {"a": 2}
    journal.close()


def test_lack_of_room_can_be_tried_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin(now_ns=0)
    pages = journal.connection.execute("PRAGMA page_count").fetchone()[0]
    journal.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = turn(1, record(0, reason="x" * 50_000), jobs=(row("a"),))
    for _ in range(2):
        with pytest.raises(JournalFull, match=r"j\.sqlite"):
            journal.commit(big)
    assert list(journal.batches()) == []
    journal.connection.execute("PRAGMA max_page_count = 100000")
    journal.commit(big)
    assert Archive(journal).next_seqs() == {"a": 1}
    journal.close()


def test_a_new_segment_keeps_what_is_over_and_drops_old_batches(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin(now_ns=0)
    journal.commit(turn(1, record(0), jobs=(row("a"),)))
    detail = summarise([record(0)], name="a")
    for number in range(KEPT_SEGMENTS):
        journal.begin(now_ns=2, finished=[detail])
        journal.commit(Turn(now_ns=2, events=(DriverStarted(epoch=number),), commands=()))
    assert Archive(journal).finished() == {"a": detail}
    assert [segment for segment, _ in journal.segments()] == list(range(2, KEPT_SEGMENTS + 2))
    assert list(journal.batches(1)) == []
    assert [len(list(journal.batches(segment))) for segment, _ in journal.segments()] == [1] * KEPT_SEGMENTS
    assert [each.record for each in Archive(journal).records("a", 0, 9, 10**6)] == [record(0)]
    journal.close()


def test_records_are_limited_in_number_and_bytes_but_never_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin(now_ns=0)
    journal.commit(turn(1, *(record(seq, reason="x" * 1000) for seq in range(10)), jobs=(row("a"),)))
    archive = Archive(journal)

    def seqs(since: int, limit: int, max_bytes: int) -> list[int]:
        return [each.record.seq for each in archive.records("a", since, limit, max_bytes)]

    assert seqs(2, 3, 10**6) == [2, 3, 4]
    assert seqs(0, 99, 2500) == [0, 1]
    assert seqs(7, 99, 1) == [7]
    assert seqs(10, 99, 10**6) == []
    journal.close()


def test_two_drivers_cannot_use_one_journal(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j.sqlite")
    with pytest.raises(JournalUnusable, match="another driver"):
        Journal(tmp_path / "j.sqlite")
    first.close()
    Journal(tmp_path / "j.sqlite").close()


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    path.write_bytes(b"these are my notes, not a database" * 100)
    with pytest.raises(JournalUnusable, match=r"j\.sqlite"):
        Journal(path)
    assert path.read_bytes() == b"these are my notes, not a database" * 100


def test_a_later_schema_and_another_database_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    for version in (0, 99):
        path.unlink(missing_ok=True)
        other = sqlite3.connect(path)
        other.executescript(f"CREATE TABLE mine (a); PRAGMA user_version = {version};")
        other.close()
        before = path.read_bytes()
        with pytest.raises(JournalUnusable, match=f"schema {version}"):
            Journal(path)
        assert path.read_bytes() == before


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    journal = Journal(path)
    journal.begin(now_ns=0)
    for now in range(1, 200):
        journal.commit(turn(now, record(now, reason="x" * 500)))
    journal.close()
    whole = bytearray(path.read_bytes())
    half = len(whole) // 2
    whole[half : half + 8192] = b"\xa5" * 8192
    path.write_bytes(whole)
    with pytest.raises(JournalUnusable, match=r"j\.sqlite"):
        list(Journal(path).batches())
    assert path.read_bytes() == whole


def test_a_batch_that_does_not_decode_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    journal = Journal(path)
    journal.begin(now_ns=0)
    journal.commit(turn(1))
    journal.connection.execute("UPDATE batches SET events = x'0102'")
    with pytest.raises(JournalUnusable, match=r"j\.sqlite: damaged journal"):
        list(journal.batches())
    journal.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnusable, match="file"):
        Journal(tmp_path / "file" / "j.sqlite")


def test_reading_beside_a_writer(tmp_path: Path) -> None:
    writer = Journal(tmp_path / "j.sqlite")
    writer.begin(now_ns=0)
    writer.commit(turn(1))
    reader = Journal(tmp_path / "j.sqlite", read_only=True)
    writer.commit(turn(2))
    assert [each.now_ns for each in reader.batches()] == [1, 2]
    reader.close()
    writer.close()
    with pytest.raises(JournalUnusable, match="no journal"):
        Journal(tmp_path / "absent.sqlite", read_only=True)


def test_now_never_goes_back_whatever_was_written_last(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"

    def now_ns() -> int:
        again = Journal(path)
        again.close()
        return again.now_ns

    journal = Journal(path)
    journal.begin(now_ns=5)
    journal.commit(turn(10, jobs=(row("a"),)))
    journal.close()
    assert now_ns() == 10
    journal = Journal(path)
    journal.commit(Turn(now_ns=20, events=(), commands=(), persisted=(("a", 0),)))
    journal.close()
    assert now_ns() == 20
    journal = Journal(path)
    for _ in range(KEPT_SEGMENTS + 1):
        journal.begin(now_ns=0, finished=())
    assert not list(journal.batches(1))
    journal.close()
    assert now_ns() == 20


def test_an_index_of_earlier_journals_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    journal = Journal(path)
    journal.begin(now_ns=5)
    journal.commit(turn(10))
    journal.connection.execute("CREATE INDEX batches_by_segment ON batches (segment, id)")
    journal.close()
    again = Journal(path)
    assert not again.connection.execute("SELECT * FROM sqlite_master WHERE name = 'batches_by_segment'").fetchall()
    assert [each.now_ns for each in again.batches()] == [10]
    again.close()


@pytest.mark.parametrize("count", [1, 200])
def test_few_events_and_many_are_read_alike(count: int) -> None:
    events = tuple(WorkerBeat(session=f"s{at}", lease=None, done=at) for at in range(count))
    assert (len(packing.packed(events)) > packing.SMALL_BYTES) is (count == 200)
    assert packing.events(packing.press(events)) == events
