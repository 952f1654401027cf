"""Trackers that are files of the run folder: metrics.jsonl and TensorBoard's event file.

Owns that they can be made again: both are functions of the records alone, byte for byte, so `start` heals what a kill
or a full disk left behind. Sheets of samples stay files of their own. Every method raises OSError, and after one the
object is thrown away.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from daemons.recorder.board import FILE_NAME, header, scalars
from daemons.recorder.files import append, heal
from daemons.recorder.metrics import metrics_line
from daemons.trackers.protocol import TrackedRun
from digend.wire.records import Record

METRICS = "metrics.jsonl"


class FileTracker:
    """One file of the run folder that grows by what a record makes."""

    def __init__(self, name: str, content: Callable[[Record], bytes]) -> None:
        self._name = name
        self._content = content
        self._path = Path()
        self._size = 0

    def start(self, run: TrackedRun, past: Sequence[Record]) -> None:
        self._path = run.folder / self._name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = b"".join(map(self._content, past))
        heal(self._path, content)
        self._size = len(content)

    def log(self, records: Sequence[Record]) -> None:
        content = b"".join(map(self._content, records))
        if content:
            self._size = append(self._path, self._size, content)

    def image(self, name: str, path: Path, record: Record) -> None:
        """They are in `samples/` already."""

    def finish(self, state: str) -> None:
        """Nothing is held open."""


def jsonl() -> FileTracker:
    return FileTracker(METRICS, lambda record: metrics_line(record).encode())


def tensorboard() -> FileTracker:
    return FileTracker(f"tensorboard/{FILE_NAME}", _board)


def _board(record: Record) -> bytes:
    return (header(record.at_ns) if record.seq == 0 else b"") + scalars(record)
