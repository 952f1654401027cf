"""Where the driver's process is and keeps its files, as clients are told: for reports, logs, dumps and their doctor."""

import os
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from digend.telemetry.journald import is_journal
from digend.wire.views import DriverView


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Absolute paths. `node`: the name of this box in node files."""

    node: str
    journal: Path
    state: Path
    runs: Path

    def view(self, now_ns: int) -> DriverView:
        """As it is now."""
        return DriverView(
            node=self.node,
            host=socket.gethostname(),
            pid=os.getpid(),
            now_ns=now_ns,
            wall_ns=time.time_ns(),
            journal=str(self.journal),
            state=str(self.state),
            runs=str(self.runs),
            free_bytes={name: free for name, path in self._disks() if (free := _free(path)) is not None},
            by_systemd=is_journal(sys.stderr),
        )

    def _disks(self) -> tuple[tuple[str, Path], ...]:
        return ("journal", self.journal.parent), ("state", self.state), ("runs", self.runs)


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
