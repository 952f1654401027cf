"""Writing that survives `kill -9` and a full disk.

Owns the three ways a file of a run folder may change: replaced whole, appended to, healed. Knows nothing of
what is in them. Invariant: after any of these raised OSError, the file is as before, or a prefix of it is
followed by bytes that `heal` or the next `append` at a known size removes.
"""

import os
from contextlib import suppress
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put `content` in the place of `path` at once: readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append(path: Path, size: int, content: bytes) -> int:
    """Cut `path` to `size` bytes, append `content`, fsync; returns the new size.

    The cut removes what an append that failed half-way (disk full) left behind. Raises OSError, also where
    the file is shorter than `size`, as somebody else changed it.
    """
    with path.open("r+b") as file:
        if os.fstat(file.fileno()).st_size < size:
            raise OSError(f"{path} was cut behind the recorder's back")
        file.truncate(size)
        file.seek(size)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return size + len(content)


def heal(path: Path, expected: bytes) -> None:
    """Make `path` hold `expected`: append what is missing, or replace it where it holds anything else."""
    present = path.read_bytes() if path.exists() else None
    if present == expected:
        return
    if present is not None and expected.startswith(present):
        append(path, len(present), expected[len(present) :])
    else:
        replace(path, expected)


def sync_folder(folder: Path) -> None:
    """Make names (created, renamed) in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
