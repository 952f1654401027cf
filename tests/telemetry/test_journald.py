"""Entries as systemd's journal takes them, on a socket of the test."""

import io
import json
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog

from digend.telemetry import journald, logs
from digend.telemetry.journald import MAX_FIELD_BYTES, MAX_MESSAGE_BYTES


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket in the place of the journal's."""
    with TemporaryDirectory(prefix="dg") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        path = str(Path(folder, "journal"))
        made.bind(path)
        made.settimeout(5)
        monkeypatch.setattr(journald, "SOCKET", path)
        yield made


@pytest.fixture
def stream(journal: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """A stream that systemd said is the journal's."""
    with (tmp_path / "stderr").open("w+") as file:
        status = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        yield file


def entry(journal: socket.socket) -> dict[str, str]:
    """The next datagram, read as the protocol's page says."""
    rest, fields = journal.recv(1 << 20), {}
    while rest:
        line, _, after = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", after[:8])
            value, after = after[8 : 8 + size], after[8 + size + 1 :]
        assert name.isupper()
        fields[name.decode()] = value.decode()
        rest = after
    return fields


def test_what_is_bound_is_a_field(journal: socket.socket, stream: io.TextIOWrapper) -> None:
    logs.set_up("console", "info", "box/generator/1", stream)
    with logs.about(job="shapes-001", micro_batch=3, policy_version=7):
        logs.logger().warning("updated", loss=0.5)
    found = entry(journal)
    assert found.pop("MESSAGE").startswith("updated loss=0.5")
    assert found == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "digend-generator-1",
        "DIGEND_PROCESS": "box/generator/1",
        "DIGEND_JOB": "shapes-001",
        "DIGEND_MICRO_BATCH": "3",
        "DIGEND_POLICY_VERSION": "7",
        "DIGEND_LOSS": "0.5",
    }
    assert Path(stream.name).read_text() == ""


def test_an_exception_is_one_entry_of_several_lines(journal: socket.socket, stream: io.TextIOWrapper) -> None:
    logs.set_up("json", "info", "box/driver", stream)
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        logs.logger().exception("failed", job="j")
    found = entry(journal)
    assert found["MESSAGE"].startswith("failed job=j\nTraceback")
    assert found["MESSAGE"].endswith("in two")
    assert found["PRIORITY"] == "3"


def test_lines_of_libraries_go_there_too(journal: socket.socket, stream: io.TextIOWrapper) -> None:
    logs.set_up("json", "info", "box/driver", stream)
    logging.getLogger("somebody").error("from %s", "a library")
    found = entry(journal)
    assert (found["MESSAGE"], found["PRIORITY"]) == ("from a library", "3")


def test_long_values_are_cut(journal: socket.socket, stream: io.TextIOWrapper) -> None:
    logs.set_up("json", "info", "box/driver", stream)
    logs.logger().info("x" * 10**6, **{f"key-{number}": "é" * 2000 for number in range(100)})
    found = entry(journal)
    assert len(found["MESSAGE"]) == MAX_MESSAGE_BYTES
    assert len(found["DIGEND_KEY_0"].encode()) <= MAX_FIELD_BYTES


def test_what_the_journal_does_not_take_is_written_to_the_stream(
    journal: socket.socket, stream: io.TextIOWrapper
) -> None:
    logs.set_up("json", "info", "box/driver", stream)
    for number in range(2_000):  # nobody reads: the socket is full soon
        logs.logger().info("line", number=number)
    written = [json.loads(line)["number"] for line in Path(stream.name).read_text().splitlines()]
    assert written[-1] == 1_999
    assert entry(journal)["DIGEND_NUMBER"] == "0"


def test_another_stream_is_no_journal(journal: socket.socket, stream: io.TextIOWrapper, tmp_path: Path) -> None:
    """As with `digend driver 2>file` in a unit."""
    with (tmp_path / "other").open("w") as other:
        assert journald.is_journal(stream)
        assert not journald.is_journal(other)
        assert not journald.is_journal(io.StringIO())


def test_without_the_variable_or_the_socket_there_is_no_journal(
    stream: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journald, "SOCKET", "/nowhere/socket")
    assert not journald.is_journal(stream)
    monkeypatch.undo()
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    assert not journald.is_journal(stream)
