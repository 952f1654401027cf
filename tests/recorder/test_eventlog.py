"""events.jsonl after a crash at any byte."""

from pathlib import Path

import pytest

from daemons.recorder.eventlog import EventLog, next_wanted, read_events
from digend.wire.records import Record
from tests.recorder.plausible import plausible_run

RECORDS = plausible_run(num_steps=1, num_prompts=1)[:5]


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    log = EventLog(tmp_path / "whole.jsonl", lambda _: None)
    log.append(RECORDS)
    return (tmp_path / "whole.jsonl").read_bytes()


def test_cut_at_every_byte_it_is_completed_to_the_same_file(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "events.jsonl"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        seen: list[Record] = []
        assert next_wanted(path) == whole[:size].count(b"\n")
        log = EventLog(path, seen.append)
        assert log.next_seq == whole[:size].count(b"\n") == len(seen)
        assert path.read_bytes() == whole[: size - log.num_cut_bytes]
        log.append(RECORDS[log.next_seq :])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("garbage", [b"\x00" * 40, b"\x00" * 40 + b"\n", b"{}\n", b"\n", b'{"seq":0}\n'])
def test_garbage_at_the_end_is_cut(tmp_path: Path, whole: bytes, garbage: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(whole + garbage)
    log = EventLog(path, lambda _: None)
    assert log.num_cut_bytes == len(garbage)
    assert path.read_bytes() == whole


def test_lines_after_a_hole_are_cut(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "events.jsonl"
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    assert EventLog(path, lambda _: None).next_seq == 3
    assert path.read_bytes() == b"".join(lines[:3])


def test_only_records_that_follow_are_taken(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", lambda _: None)
    for wrong in (RECORDS[1:3], [RECORDS[0], RECORDS[2]], [RECORDS[0], RECORDS[0]]):
        with pytest.raises(ValueError, match="do not follow"):
            log.append(wrong)
    assert (tmp_path / "events.jsonl").read_bytes() == b""


def test_a_log_somebody_shortened_is_an_error_not_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, lambda _: None)
    log.append(RECORDS[:3])
    path.write_bytes(b"")
    with pytest.raises(OSError, match="behind the recorder's back"):
        log.append(RECORDS[3:4])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        log.append(RECORDS[3:4])


def test_reading_does_not_change_the_file(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(whole[:-5])
    assert list(read_events(path)) == RECORDS[:-1]
    assert path.read_bytes() == whole[:-5]
