"""Numbers that options take: of seconds, GiB, GB/s and global steps, within bounds that all that follows can bear.

Owns the bounds, of times files too. Must not know what a verb does with a number. Invariant: what gets through is
finite, and whole multiples, shares and sums of it neither overflow nor vanish.
"""

from typing import Any

import click

LEAST_S = 1e-9
MOST_S = 1e9
"""Seconds, or the unit of a simulation: from a nanosecond to thirty years."""
MOST_INT = 2**31 - 1


class Amount(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number from `least` to `most`; with `zero` also 0. (Newer versions of click alone have a generic ParamType.)"""

    name = "float"

    def __init__(self, least: float, most: float, *, zero: bool = False) -> None:
        self._least, self._most, self._zero = least, most, zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter, with the bounds, for any other, and for what is no number."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not (self._least <= number <= self._most or (self._zero and number == 0)):
            zero = "0, or " if self._zero else ""
            self.fail(f"{value}: must be {zero}from {self._least:g} to {self._most:g}", param, ctx)
        return number


TIME = Amount(LEAST_S, MOST_S)
TIME_OR_NONE = Amount(LEAST_S, MOST_S, zero=True)
GIB = Amount(1e-3, 1e6)
GB_PER_S = Amount(1e-6, 1e6)
COUNT = click.IntRange(0, MOST_INT)
GLOBAL_STEP = click.IntRange(1, MOST_INT)
