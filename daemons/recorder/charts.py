"""Curves as geometry: the report's template only has to write it down as SVG.

Owns scales, ticks and thinning. Knows no records and no markup. Invariant: a chart has at most 2 x 200
points a line, and a spike is never thinned away; figures that are not finite are counted, not drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]

WIDTH, HEIGHT = 336, 176
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 24
_MAX_BUCKETS = 200
_MAX_DOTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """(x, y) points in order of x. `style` is a class of the style sheet: main, second or third."""

    name: str
    points: Sequence[Point]
    style: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    x: float
    y: float
    title: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything in pixels of a WIDTH x HEIGHT box."""

    title: str
    note: str
    paths: tuple[tuple[str, str, str], ...]
    """(name, style, SVG path data)"""
    band: str
    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    num_not_finite: int
    """Figures that could not be drawn."""
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    bottom: float = HEIGHT - _BOTTOM

    @property
    def remark(self) -> str:
        missing = f"{self.num_not_finite} not finite" if self.num_not_finite else ""
        return " · ".join(part for part in (self.note, missing) if part)


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    note: str = "",
    band: Sequence[tuple[float, float, float]] = (),
    log: bool = False,
    from_zero: bool = False,
) -> Chart | None:
    """None where nothing finite is to be drawn. `band` has (x, low, high). `log`: logarithmic, zeros at the
    foot.
    """
    finite = [
        Line(name=line.name, points=[point for point in line.points if math.isfinite(point[1])], style=line.style)
        for line in lines
    ]
    dropped = sum(len(line.points) for line in lines) - sum(len(line.points) for line in finite)
    everything = [point for line in finite for point in line.points]
    if not everything:
        return None
    edges = [(x, y) for x, low, high in band for y in (low, high) if math.isfinite(y)]
    x_axis = _Axis.around([x for x, _ in everything], _LEFT, WIDTH - _RIGHT)
    y_axis = _Axis.around(
        [y for _, y in everything + edges], HEIGHT - _BOTTOM, _TOP, log=log, from_zero=from_zero, padded=True
    )
    return Chart(
        title=title,
        note=note,
        paths=tuple((line.name, line.style, _path(thin(line.points), x_axis, y_axis)) for line in finite),
        band=_band([edge for edge in band if all(map(math.isfinite, edge))], x_axis, y_axis),
        dots=tuple(dot for line in finite for dot in _dots(line, x_axis, y_axis)),
        x_ticks=x_axis.ticks(4, whole=True),
        y_ticks=y_axis.ticks(4),
        num_not_finite=dropped,
    )


def thin(points: Sequence[Point]) -> list[Point]:
    """At most two points a bucket, its lowest and its highest, in order of x."""
    if len(points) <= 2 * _MAX_BUCKETS:
        return list(points)
    kept: list[Point] = []
    for bucket in range(_MAX_BUCKETS):
        part = points[bucket * len(points) // _MAX_BUCKETS : (bucket + 1) * len(points) // _MAX_BUCKETS]
        kept.extend(sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}))
    return kept


def number(value: float) -> str:
    """Three significant digits, short."""
    if not math.isfinite(value):
        return "–"
    if value < 0:
        return f"−{number(-value)}"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.4g}"
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def fixed(value: float) -> str:
    """Three decimals where that is enough, so that figures beside each other align."""
    return f"{value:.3f}".replace("-", "−") if 0.01 <= abs(value) < 10 else number(value)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values from `low` to `high` (log10 of them where `log`) onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        log: bool = False,
        from_zero: bool = False,
        padded: bool = False,
    ) -> "_Axis":
        if log:
            positive = [math.log10(value) for value in values if value > 0]
            floor, ceiling = math.floor(min(positive, default=-8)), math.ceil(max(positive, default=-7))
            return cls(floor, max(ceiling, floor + 1), start, end, True)
        low, high = min(values), max(values)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low < 1e-12 * max(abs(high), 1e-9):
            low, high = (low - 0.5 * abs(low or 1), high + 0.5 * abs(high or 1)) if not from_zero else (0.0, 1.0)
        pad = 0.06 * (high - low) if padded else 0.0
        return cls(low if from_zero and low == 0 else low - pad, high + pad, start, end)

    def at(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, num: int, *, whole: bool = False) -> tuple[Tick, ...]:
        if self.log:
            stride = max(math.ceil((self.high - self.low) / num), 1)
            exponents = range(int(self.low), int(self.high) + 1, stride)
            return tuple(Tick(at=self.at(10.0**exponent), text=f"1e{exponent}") for exponent in exponents)
        step = _nice((self.high - self.low) / num)
        step = max(step, 1.0) if whole else step
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        values = [(first + index) * step for index in range(max(count, 0))]
        return tuple(Tick(at=self.at(value), text=number(value)) for value in values)


def _nice(step: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(step))
    return next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= 0.8 * step)


def _path(points: Sequence[Point], x_axis: _Axis, y_axis: _Axis) -> str:
    return " ".join(f"{'L' if index else 'M'}{x_axis.at(x)} {y_axis.at(y)}" for index, (x, y) in enumerate(points))


def _band(edges: Sequence[tuple[float, float, float]], x_axis: _Axis, y_axis: _Axis) -> str:
    if not edges:
        return ""
    stride = max(len(edges) // _MAX_BUCKETS, 1)
    some = edges[::stride]
    outline = [(x, high) for x, _, high in some] + [(x, low) for x, low, _ in reversed(some)]
    return _path(outline, x_axis, y_axis) + " Z"


def _dots(line: Line, x_axis: _Axis, y_axis: _Axis) -> list[Dot]:
    if len(line.points) > _MAX_DOTS:
        return []
    return [
        Dot(
            x=x_axis.at(x),
            y=y_axis.at(y),
            title=f"{line.name}: {number(y)} after {number(x)} global steps",
            style=line.style,
        )
        for x, y in line.points
    ]
