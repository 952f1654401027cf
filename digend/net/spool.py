"""Blobs on disk: what does not fit into a process's memory any more, until it is freed.

Owns the folder `spool/INSTANCE` of the state directory, one file a blob. Must not know tensors' meaning or who pulls
them. Invariants: what `keep` gives has the bits that it was given, or `keep` raises and nothing is left behind; no more
than the quota is on disk; files go when they are freed, when the process ends, and where it was killed, when the next
one begins.
"""

import fcntl
import mmap
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from digend.wire.tensors import Array

ALIGN_BYTES = 64
LOCK = "lock"


class SpoolFull(Exception):
    """In words: over the quota, or what the disk said."""


class Spool:
    """Safe from any thread. `quota_bytes` 0: nothing goes to disk."""

    def __init__(self, state_dir: Path, instance: str, quota_bytes: int) -> None:
        root = state_dir.absolute() / "spool"
        self.quota_bytes = quota_bytes
        self._folder = root / blake2b(instance.encode(), digest_size=6).hexdigest()
        self._sizes: dict[str, int] = {}
        self._guard = Lock()
        self._lock: int | None = None
        _sweep(root)

    @property
    def used_bytes(self) -> int:
        with self._guard:
            return sum(self._sizes.values())

    def keep(self, blob: str, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The same tensors, backed by a file. Blocks until it is written. Raises SpoolFull."""
        size = sum(_padded(array.num_bytes) for array in tensors.values())
        with self._guard:
            used = sum(self._sizes.values())
            if used + size > self.quota_bytes:
                raise SpoolFull(f"{used + size} bytes are over blobs.spool_gib ({self.quota_bytes} bytes)")
            self._sizes[blob] = size
        path = self._folder / blob
        try:
            self._claim()
            return _written(path, tensors, size)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            with self._guard:
                del self._sizes[blob]
            raise SpoolFull(f"{self._folder}: {error.strerror or error}") from error

    def free(self, blob: str) -> None:
        """A blob that is not there is no error. Who still reads it keeps its memory until then."""
        with self._guard:
            if self._sizes.pop(blob, None) is None:
                return
        with suppress(OSError):
            (self._folder / blob).unlink()

    def close(self) -> None:
        with self._guard:
            self._sizes.clear()
        if self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        """The folder is this process's as long as it holds the lock. Raises OSError."""
        with self._guard:
            if self._lock is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _written(path: Path, tensors: Mapping[str, Array], size: int) -> dict[str, Array]:
    if not size:
        return dict(tensors)
    with path.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, size)  # a full disk says so now, not when the map is read
        for array in tensors.values():
            file.write(array.data)
            file.write(bytes(_padded(array.num_bytes) - array.num_bytes))
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    kept: dict[str, Array] = {}
    offset = 0
    for name, array in tensors.items():
        kept[name] = Array(array.dtype, array.shape, data[offset : offset + array.num_bytes])
        offset += _padded(array.num_bytes)
    return kept


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGN_BYTES) * ALIGN_BYTES


def _sweep(root: Path) -> None:
    """Removes folders whose process is gone: nobody holds their lock."""
    for lock in root.glob(f"*/{LOCK}"):
        with suppress(OSError):
            handle = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
