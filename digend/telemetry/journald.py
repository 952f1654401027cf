"""Lines for systemd's journal with fields of their own: `journalctl DIGEND_JOB=shapes-001`.

Owns the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram an entry. Must not know who logs.
Invariant: a line is not lost for the journal's sake: what its socket does not take is handled otherwise.
"""

import json
import logging
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

SOCKET = "/run/systemd/journal/socket"
MAX_FIELDS = 32
MAX_FIELD_BYTES = 1024
MAX_MESSAGE_BYTES = 64 * 1024
"""Together less than half of what a datagram holds (net.core.wmem_default, 208 KiB), so no memfd is needed."""

PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
UNSAID = frozenset({"event", "level", "timestamp", "process", "exception"})
"""Keys of an entry that its message does not repeat."""


def is_journal(stream: TextIO) -> bool:
    """Whether what is written to `stream` goes to the journal (JOURNAL_STREAM, systemd.exec(5))."""
    named = os.environ.get("JOURNAL_STREAM")
    if not named or not Path(SOCKET).exists():
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


class JournalHandler(logging.Handler):
    """Takes records whose formatter makes a JSON object of them. `otherwise` handles what the journal does not take."""

    def __init__(self, otherwise: logging.Handler) -> None:
        super().__init__()
        self._otherwise = otherwise
        self._address = SOCKET
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._socket.sendto(encoded(fields_of(json.loads(self.format(record)))), self._address)
        except OSError:
            self._otherwise.handle(record)

    def close(self) -> None:
        self._socket.close()
        super().close()


def fields_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """The journal's fields for a log entry: `job` is DIGEND_JOB, and so on. The message has what was logged with it."""
    fields = {
        "MESSAGE": message_of(entry),
        "PRIORITY": str(PRIORITIES.get(str(entry.get("level")), 6)),
        "SYSLOG_IDENTIFIER": identifier(str(entry.get("process", ""))),
    }
    named = [key for key in entry if key == "process" or key not in UNSAID]
    return fields | {
        f"DIGEND_{re.sub('[^A-Z0-9_]', '_', key.upper())}": _text(entry[key]) for key in named[:MAX_FIELDS]
    }


def message_of(entry: Mapping[str, Any]) -> str:
    """What `journalctl` shows: the event, what was logged with it, the traceback if there is one."""
    told = [f"{key}={_text(value)}" for key, value in entry.items() if key not in UNSAID]
    line = " ".join([str(entry.get("event", "")), *told])
    return "\n".join(filter(None, (line, entry.get("exception"))))


def identifier(process: str) -> str:
    """`box/generator/0` is digend-generator-0: what stands before each line of `journalctl`."""
    return "-".join(["digend", *process.split("/")[1:]])


def encoded(fields: Mapping[str, str]) -> bytes:
    """One datagram. A value of several lines carries its length; what is too long is cut."""
    lines = []
    for name, value in fields.items():
        limit = MAX_MESSAGE_BYTES if name == "MESSAGE" else MAX_FIELD_BYTES
        data = value.encode("utf-8", "replace")[:limit]
        separator = b"\n" + struct.pack("<Q", len(data)) if b"\n" in data else b"="
        lines.append(name.encode("ascii") + separator + data + b"\n")
    return b"".join(lines)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
