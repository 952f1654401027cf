"""`state/logs` of this box: which file is whose, all that is in them, and what is added to them.

Must not know how entries look. Invariant: following loses no line at a rotation: a file that was renamed is read to its
end before the new one is begun.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

ROLES_WITH_SLOTS = ("generator", "trainer", "reward")


def worker_name(node: str, file: Path) -> str:
    """`box/generator/1` for generator-1.log, `box/driver` for driver.log, as the processes themselves say."""
    role, _, slot = file.stem.partition("-")
    return f"{node}/{role}/{slot}" if slot else f"{node}/{role}"


def files_of(folder: Path) -> list[Path]:
    """One a process."""
    return sorted(folder.glob("*.log"))


def lines_of(file: Path) -> Iterator[str]:
    """All that is kept, the oldest first."""
    yield from rotated_lines(file)
    yield from _lines(file)


def rotated_lines(file: Path) -> Iterator[str]:
    """What was rotated away: files with a number, the larger the older."""
    for path in sorted(file.parent.glob(f"{file.name}.*"), key=lambda path: int(path.suffix[1:] or 0), reverse=True):
        yield from _lines(path)


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from (line.rstrip("\n") for line in lines)
    except FileNotFoundError:
        return  # rotated meanwhile


class Follower:
    """What is in a file, and then what is added to it."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._file: IO[str] | None = None
        self._rest = ""
        self._open()

    def new_lines(self) -> list[str]:
        """Whole lines since the last look."""
        lines = self._read()
        if self._replaced():
            self.close()
            self._open()
            lines += self._read()
        return lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        with suppress(FileNotFoundError):
            self._file = self._path.open(encoding="utf-8", errors="replace")

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        return lines

    def _replaced(self) -> bool:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        held = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)
