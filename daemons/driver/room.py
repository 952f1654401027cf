"""Whether there is room on the journal's disk, and what is said while there is not.

Owns two grades: `low` (the core starts no new jobs, clients are refused, running work goes on) and `held`
(a turn could not be written: nothing is decided until it is). Blocking calls are a `statvfs` each.
"""

from pathlib import Path

from broker.events import DiskState
from daemons.driver.schema import free_bytes

LOW_BYTES = 32 * 1024 * 1024
ENOUGH_BYTES = 2 * LOW_BYTES


class Room:
    """Watches the disk of `path`; limits can be set for small disks."""

    def __init__(self, path: Path, low_bytes: int = LOW_BYTES, enough_bytes: int = ENOUGH_BYTES) -> None:
        self._path = path
        self._low_bytes = low_bytes
        self._enough_bytes = enough_bytes
        self._low = False
        self.held = ""

    @property
    def reason(self) -> str:
        """Why nothing new is taken; "" where there is room."""
        if self.held:
            return self.held
        return f"the disk of {self._path.parent} is almost full" if self._low else ""

    def look(self) -> DiskState | None:
        """Measures; the event where the grade has changed. There is hysteresis between low and enough."""
        free = free_bytes(self._path)
        low = free < (self._enough_bytes if self._low else self._low_bytes)
        if low == self._low:
            return None
        self._low = low
        return DiskState(full=low, reason=self.reason)
