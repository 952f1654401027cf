"""events.jsonl of one run: the truth from which everything else in the folder can be made again.

Owns that file. Invariant: its complete lines are the job's records 0, 1, 2, ... without a hole; `next_seq`
is the first one that is not durably there. A line that was torn by a kill, and whatever follows a line that
does not fit, is cut.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from daemons.recorder.files import append, replace
from daemons.recorder.lines import decode, encode
from digend.wire.records import Record

_TAIL_BYTES = 1 << 20


class EventLog:
    """Opened by reading all of it; `visit` gets every record that is there, in order."""

    def __init__(self, path: Path, visit: Callable[[Record], None]) -> None:
        self._path = path
        self.next_seq = 0
        self.num_cut_bytes = 0
        self._size = self._read(visit) if path.exists() else self._create()

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait for the disk. They must follow on each other. Raises OSError; then none
        counts.
        """
        if [record.seq for record in records] != list(range(self.next_seq, self.next_seq + len(records))):
            raise ValueError(f"records do not follow on {self.next_seq}")
        content = "".join(encode(record) + "\n" for record in records).encode()
        self._size = append(self._path, self._size, content)
        self.next_seq += len(records)

    def _create(self) -> int:
        replace(self._path, b"")
        return 0

    def _read(self, visit: Callable[[Record], None]) -> int:
        size = 0
        for record, num_bytes in _sound_lines(self._path):
            visit(record)
            self.next_seq += 1
            size += num_bytes
        self.num_cut_bytes = self._path.stat().st_size - size
        if self.num_cut_bytes:
            append(self._path, size, b"")
        return size


def read_events(path: Path) -> Iterator[Record]:
    """The records of a log, up to the first line that does not fit; the file is left as it is."""
    return (record for record, _ in _sound_lines(path))


def next_wanted(path: Path) -> int:
    """`next_seq` of a log by its last complete line only, without reading the rest; 0 where there is none."""
    with path.open("rb") as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(max(size - _TAIL_BYTES, 0))
        lines = file.read().splitlines(keepends=True)
    for line in reversed(lines):
        record = _complete(line)
        if record is not None:
            return record.seq + 1
    return 0


def _sound_lines(path: Path) -> Iterator[tuple[Record, int]]:
    """(record, bytes of its line) as long as lines are complete and numbered without a hole."""
    with path.open("rb") as file:
        for seq, line in enumerate(file):
            record = _complete(line)
            if record is None or record.seq != seq:
                return
            yield record, len(line)


def _complete(line: bytes) -> Record | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return decode(line)
    except ValueError:
        return None
