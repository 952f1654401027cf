"""One process an ipc address: a lock file beside the socket file.

Binding a Unix socket in ZeroMQ removes whatever file is there, so a second server would silently take the
address from the first. Invariant: an ipc address is bound only by the holder of its lock. The kernel lets go
of a dead process's lock, so the file itself stays behind and means nothing.
"""

import fcntl
import os
import stat
from pathlib import Path


class AddressInUse(OSError):
    """Another process (named where known) serves this address."""


class Claim:
    """A held lock on a socket path."""

    def __init__(self, path: Path) -> None:
        """Makes the folder. Raises AddressInUse, or OSError where the folder cannot be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            self.release()
            raise AddressInUse(f"{path} is a file of another kind, not a socket: move it away, or use another address")

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(path: Path) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise AddressInUse(f"ipc://{path} is served by process {holder}: stop it, or use another address") from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock
