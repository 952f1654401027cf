"""Numbers as people say them. Pure."""

from datetime import datetime
from math import isfinite

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def age(seconds: float | None) -> str:
    """`8 s`, `4 min`, `2 h 5 min`, `3 d`; a dash where there is none."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h {minutes} min" if minutes else f"{whole // 3600} h"
    return f"{whole // 86400} d"


def instant(at_ns: int | None) -> str:
    """`2026-03-01 14:05:09` here; a dash where there is none."""
    return "-" if at_ns is None else datetime.fromtimestamp(at_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None, digits: int = 3) -> str:
    """A figure with so many decimals; a dash where there is none or it is not finite."""
    return "-" if value is None or not isfinite(value) else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """A percentage, `12.5 %`."""
    return "-" if value is None or not isfinite(value) else f"{100 * value:.1f} %"


def size(num_bytes: int) -> str:
    """`1.5 GiB`, `80 MiB`, `3 KiB`, `12 B`; a dash for none."""
    if not num_bytes:
        return "-"
    unit, name = next(((unit, name) for unit, name in _UNITS if num_bytes >= unit), (1, "B"))
    whole = num_bytes / unit
    return f"{whole:.1f} {name}" if whole < 9.95 and unit > 1 else f"{whole:.0f} {name}"


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
