"""The times of one global step, exact: the rationals of their shortest decimal forms, as whole numbers of ticks.

Owns the conversion to ticks and back and the checks of what is given. Invariant: equal inputs give equal integers, so
two implementations that agree on the rules agree on every tie.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, isfinite, lcm

MICROSECOND = Fraction(1, 1_000_000)
_POSITIVE = ("generate", "assist", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Ticks of one micro-batch: `generate` by the generator pool (g), `assist` by the trainer (h, None: it cannot),
    `update` (t), `score` (s, 0: no scoring), `switch` of the trainer between training and generating (c), `commit`, the
    optimizer step with publishing (y). A tick is `unit` of whatever the times were given in.

    Raises ValueError, naming the time, where generate, assist or update is not positive or another is negative.
    """

    generate: int
    update: int
    assist: int | None = None
    score: int = 0
    switch: int = 0
    commit: int = 0
    unit: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for name, ticks in self.given().items():
            _check(name, ticks)

    @classmethod
    def exact(
        cls,
        *,
        generate: float,
        update: float,
        assist: float | None = None,
        score: float = 0.0,
        switch: float = 0.0,
        commit: float = 0.0,
    ) -> "Times":
        """From seconds (or any unit): 0.1 is a tenth, not the float nearest to it.

        Raises ValueError, naming the time, for one that is negative, zero where it may not be, or not finite.
        """
        named = {"generate": generate, "update": update, "score": score, "switch": switch, "commit": commit}
        if assist is not None:
            named["assist"] = assist
        for name, value in named.items():
            _check(name, value)
        return cls._of({name: rational(value) for name, value in named.items()})

    @classmethod
    def _of(cls, named: Mapping[str, Fraction]) -> "Times":
        """The coarsest tick of which all are whole multiples: small integers make a fast search."""
        over = lcm(*(value.denominator for value in named.values()))
        whole = {name: int(value * over) for name, value in named.items()}
        common = gcd(*whole.values())
        return cls(**{name: value // common for name, value in whole.items()}, unit=Fraction(common, over))

    def given(self) -> dict[str, int]:
        """By name, without an `assist` that is not known."""
        values = {name: getattr(self, name) for name in ("generate", "update", "assist", "score", "switch", "commit")}
        return {name: value for name, value in values.items() if value is not None}

    def finer(self, factor: int) -> "Times":
        """The same times in ticks of a `factor`-th, so that they can be varied and stay whole."""
        return replace(self, **{name: ticks * factor for name, ticks in self.given().items()}, unit=self.unit / factor)

    def seconds(self, ticks: int) -> float:
        """In what the times were given in; correctly rounded."""
        return float(ticks * self.unit)


def rational(value: float) -> Fraction:
    """The shortest decimal that reads back as `value`, as a fraction."""
    return Fraction(repr(value))


def _check(name: str, value: float) -> None:
    if not isfinite(value):
        raise ValueError(f"{name} = {value}: must be a finite number")
    if value < 0 or (value == 0 and name in _POSITIVE):
        raise ValueError(f"{name} = {value}: must be {'greater than 0' if name in _POSITIVE else 'at least 0'}")
