"""What a doctor finds: `digend doctor` of one box, `digenctl doctor` of a client's side and the running cluster."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from digend.exitcodes import ExitCode

Level = Literal["ok", "warning", "error"]

LOW_BYTES = 5 * 1024**3
FULL_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    level: Level
    what: str
    message: str


def room(what: str, where: str, free_bytes: int) -> Finding:
    """How a disk is: a checkpoint needs gigabytes, a driver without half of one takes no jobs."""
    level: Level = "error" if free_bytes < FULL_BYTES else "warning" if free_bytes < LOW_BYTES else "ok"
    return Finding(level, what, f"{where}, {free_bytes / 1024**3:.1f} GiB free")


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """0 all is well, 3 something is odd, 78 something will not work."""
    levels = {finding.level for finding in findings}
    if "error" in levels:
        return ExitCode.BAD_CONFIG
    return ExitCode.DEGRADED if "warning" in levels else ExitCode.OK
