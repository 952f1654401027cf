"""Files that clients upload (prompts), kept under their digest.

Owns `state/uploads`. Invariant: a file named by a digest is complete and has that digest; parts have
another name and are forgotten when the driver starts.
"""

import hashlib
import os
import re
from pathlib import Path

CHUNK_BYTES = 128 * 1024
FILE_BYTES = 16 * 1024 * 1024
TOTAL_BYTES = 256 * 1024 * 1024

_DIGEST = re.compile(r"^[0-9a-f]{16,128}$")


class UploadRefused(Exception):
    """What is wrong with the chunk or the file, in words for the client."""


class Uploads:
    """Blocking, small. Raises UploadRefused, and OSError where the disk refuses."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        for part in folder.glob("*.part"):
            part.unlink()

    def has(self, digest: str) -> bool:
        return bool(_DIGEST.match(digest)) and self._path(digest).exists()

    def read(self, digest: str) -> bytes:
        """Raises UploadRefused if there is no such file."""
        if not self.has(digest):
            raise UploadRefused(f"no complete upload has the digest {digest[:128]!r}")
        return self._path(digest).read_bytes()

    def add(self, digest: str, offset: int, size: int, data: bytes) -> int:
        """Adds a chunk; returns the offset wanted next (`size` once the file is complete).

        A chunk at another offset than wanted adds nothing: the answer says where to go on.
        """
        self._check(digest, offset, size, data)
        if self.has(digest):
            return size
        part = self._folder / f"{digest}.part"
        have = part.stat().st_size if part.exists() else 0
        if have == 0:
            self._check_room(size)
        if offset != have:
            return have
        with part.open("ab") as file:
            file.write(data)
            if have + len(data) == size:
                file.flush()
                os.fsync(file.fileno())
        if have + len(data) == size:
            self._complete(part, digest)
        return have + len(data)

    def _check(self, digest: str, offset: int, size: int, data: bytes) -> None:
        if not _DIGEST.match(digest) or len(digest) % 2:
            raise UploadRefused("an upload is named by its blake2b digest, in hexadecimal")
        if not 0 <= size <= FILE_BYTES:
            raise UploadRefused(f"a file of {size} bytes; at most {FILE_BYTES} are taken")
        if len(data) > CHUNK_BYTES:
            raise UploadRefused(f"a chunk of {len(data)} bytes; at most {CHUNK_BYTES} are taken")
        if offset < 0 or offset + len(data) > size or (not data and size):
            raise UploadRefused(f"a chunk of {len(data)} bytes at {offset} does not fit in {size}")

    def _check_room(self, size: int) -> None:
        held = sum(file.stat().st_size for file in self._folder.iterdir())
        if held + size > TOTAL_BYTES:
            raise UploadRefused(f"uploads hold {held} bytes of {TOTAL_BYTES}; remove old files in {self._folder}")

    def _complete(self, part: Path, digest: str) -> None:
        found = hashlib.blake2b(part.read_bytes(), digest_size=len(digest) // 2).hexdigest()
        if found != digest:
            part.unlink()
            raise UploadRefused(f"the file has digest {found}, not {digest} as announced")
        part.rename(self._path(digest))

    def _path(self, digest: str) -> Path:
        return self._folder / digest
