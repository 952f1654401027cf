"""A row of figures as bars of one character each. Pure."""

from collections.abc import Sequence
from math import isfinite

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest `width` of them between their smallest and largest; a space where one is not finite."""
    shown = values[-width:] if width > 0 else ()
    finite = [value for value in shown if isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(value, low, high) for value in shown)


def _bar(value: float, low: float, high: float) -> str:
    if not isfinite(value):
        return " "
    return BARS[min(int((value - low) / (high - low) * len(BARS)), len(BARS) - 1)] if high > low else BARS[0]
