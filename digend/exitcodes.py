"""Exit codes of every program, one table. Source: sysexits.h for 64-78, flux for 42."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a process says when it ends; the same numbers for daemons and for digenctl."""

    OK = 0
    TARGET_FAILED = 1
    USAGE = 2
    DEGRADED = 3
    NOT_FOUND = 5
    ASKED_TO_STOP = 42
    DRIVER_UNREACHABLE = 69
    TIMED_OUT = 75
    OTHER_PROTOCOL = 76
    NOT_PERMITTED = 77
    BAD_CONFIG = 78
