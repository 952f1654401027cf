"""The timeline as geometry: a lane for each worker, exact spans of a window or shares of the whole run.

Owns the projection of time onto pixels. Knows no records and no markup. Invariant: bounded output, at most
`max_spans` boxes in a window (the newest), `NUM_BINS` columns a lane in the overview.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from digend.telemetry.timeline import Mark, Span

LABEL_WIDTH, LANE, PITCH, TOP = 128, 24, 34, 8
NUM_BINS = 180
_STRIP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All boxes of one kind in one lane, as SVG path data."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Pixels of a width x height box. `boxes` are drawn, `stacks` too, `hovers` only have titles."""

    width: float
    height: float
    labels: tuple[tuple[float, str], ...]
    boxes: tuple[Box, ...]
    stacks: tuple[Stack, ...]
    hovers: tuple[Box, ...]
    marks: tuple[tuple[float, str, str], ...]
    """(x, kind, title)"""
    ticks: tuple[tuple[float, str], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Window:
    start_ns: int
    end_ns: int
    width: float

    def x(self, at_ns: int) -> float:
        share = (at_ns - self.start_ns) / max(self.end_ns - self.start_ns, 1)
        return round(LABEL_WIDTH + min(max(share, 0.0), 1.0) * (self.width - LABEL_WIDTH - 8), 2)


def detail(
    spans: Sequence[Span],
    marks: Sequence[Mark],
    start_ns: int,
    end_ns: int,
    *,
    origin_ns: int,
    width: float,
    max_spans: int = 5000,
    stagings: Sequence[Span] = (),
) -> Lanes:
    """Every span that touches the window, cut at its edges; what was staged meanwhile as a strip below the lane."""
    window = _Window(start_ns, end_ns, width)
    inside = [span for span in spans if span.end_ns > start_ns and span.start_ns < end_ns][-max_spans:]
    workers = sorted({span.worker for span in inside})
    boxes = []
    for span in inside:
        x = window.x(span.start_ns)
        y = TOP + workers.index(span.worker) * PITCH
        length = (span.end_ns - span.start_ns) / 1e9
        box_width = max(round(window.x(span.end_ns) - x, 2), 0.3)
        title = f"{span.title}: {length:.3f} s, from {(span.start_ns - origin_ns) / 1e9:.2f} s"
        boxes.append(Box(x=x, y=y, width=box_width, height=LANE, kind=span.kind, title=title))
    boxes += _strips(window, workers, stagings, origin_ns, max_spans)
    return _lanes(window, workers, marks, origin_ns, boxes=boxes)


def _strips(
    window: _Window, workers: Sequence[str], stagings: Sequence[Span], origin_ns: int, max_spans: int
) -> list[Box]:
    """Stagings in the window, below the lanes of their workers."""
    boxes = []
    for span in stagings[-max_spans:]:
        if span.worker not in workers or span.end_ns <= window.start_ns or span.start_ns >= window.end_ns:
            continue
        x, y = window.x(span.start_ns), float(TOP + workers.index(span.worker) * PITCH + LANE + 1)
        length, since = (span.end_ns - span.start_ns) / 1e9, (span.start_ns - origin_ns) / 1e9
        title = f"{span.title}: {length:.3f} s, from {since:.2f} s"
        width = max(round(window.x(span.end_ns) - x, 2), 0.3)
        boxes.append(Box(x=x, y=y, width=width, height=_STRIP, kind=span.kind, title=title))
    return boxes


def overview(
    spans: Sequence[Span], marks: Sequence[Mark], *, origin_ns: int, width: float, stagings: Sequence[Span] = ()
) -> Lanes:
    """Shares of time by kind in `NUM_BINS` columns from the first span to the last, and stagings as they were."""
    start_ns = min((span.start_ns for span in spans), default=0)
    window = _Window(start_ns, max((span.end_ns for span in spans), default=1), width)
    workers = sorted({span.worker for span in spans})
    bins = _bins(spans, window)
    stacks: list[Stack] = []
    hovers: list[Box] = []
    for lane, worker in enumerate(workers):
        paths: dict[str, list[str]] = {}
        for column in range(NUM_BINS):
            shares = bins.get((worker, column), {})
            left, right = _column(window, column)
            foot = float(TOP + lane * PITCH + LANE)
            for kind, share in _in_order(shares):
                height = round(share * LANE, 2)
                foot -= height
                paths.setdefault(kind, []).append(f"M{left:.2f} {foot:.2f}h{right - left:.2f}v{height:.2f}H{left:.2f}z")
            if shares:
                text = ", ".join(f"{kind} {share:.0%}" for kind, share in _in_order(shares) if share >= 0.005)
                hover_y = TOP + lane * PITCH
                hovers.append(
                    Box(x=left, y=hover_y, width=right - left, height=LANE, kind="hover", title=f"{worker}: {text}")
                )
        stacks.extend(Stack(kind=kind, path="".join(path)) for kind, path in paths.items())
    strips = _strips(window, workers, stagings, origin_ns, NUM_BINS * len(workers))
    return _lanes(window, workers, marks, origin_ns, boxes=strips, stacks=stacks, hovers=hovers)


def short_names(workers: Iterable[str]) -> dict[str, str]:
    """Worker names without the node, where all are of one node."""
    names = sorted(workers)
    nodes = {name.split("/")[0] for name in names}
    one_node = len(nodes) == 1 and all("/" in name for name in names)
    return {name: name.split("/", 1)[1].replace("/", " ") if one_node else name for name in names}


_BOTTOM_UP = (
    "generate",
    "assist",
    "encode",
    "decode",
    "score",
    "update",
    "optimizer",
    "publish",
    "switch",
    "stage",
    "fetch",
    "load",
    "evaluate",
    "checkpoint",
    "other",
    "idle",
    "bubble",
)


def _in_order(shares: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: _BOTTOM_UP.index(item[0]))


def _bins(spans: Sequence[Span], window: _Window) -> dict[tuple[str, int], dict[str, float]]:
    """(worker, column) -> share of the column's time by kind."""
    length = max(window.end_ns - window.start_ns, 1) / NUM_BINS
    bins: dict[tuple[str, int], dict[str, float]] = {}
    for span in spans:
        first = int((span.start_ns - window.start_ns) / length)
        last = min(int((span.end_ns - window.start_ns) / length), NUM_BINS - 1)
        for column in range(first, last + 1):
            begin = window.start_ns + column * length
            inside = min(span.end_ns, begin + length) - max(span.start_ns, begin)
            if inside > 0:
                shares = bins.setdefault((span.worker, column), {})
                shares[span.kind] = min(shares.get(span.kind, 0.0) + inside / length, 1.0)
    return bins


def _column(window: _Window, column: int) -> tuple[float, float]:
    usable = window.width - LABEL_WIDTH - 8
    return LABEL_WIDTH + usable * column / NUM_BINS, LABEL_WIDTH + usable * (column + 1) / NUM_BINS


def _lanes(
    window: _Window,
    workers: Sequence[str],
    marks: Sequence[Mark],
    origin_ns: int,
    *,
    boxes: Sequence[Box] = (),
    stacks: Sequence[Stack] = (),
    hovers: Sequence[Box] = (),
) -> Lanes:
    names = short_names(workers)
    inside = [mark for mark in marks if window.start_ns <= mark.at_ns <= window.end_ns]
    return Lanes(
        width=window.width,
        height=TOP + len(workers) * PITCH + 18,
        labels=tuple((TOP + lane * PITCH + LANE / 2 + 4, names[worker]) for lane, worker in enumerate(workers)),
        boxes=tuple(boxes),
        stacks=tuple(stacks),
        hovers=tuple(hovers),
        marks=tuple((window.x(mark.at_ns), mark.kind, mark.title) for mark in inside),
        ticks=_ticks(window, origin_ns),
        seconds=(window.end_ns - window.start_ns) / 1e9,
    )


def _ticks(window: _Window, origin_ns: int) -> tuple[tuple[float, str], ...]:
    seconds = (window.end_ns - window.start_ns) / 1e9
    num = max(int((window.width - LABEL_WIDTH) / 110), 2)
    steps = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400]
    step = next((step for step in steps if seconds / step <= num), steps[-1])
    first = int((window.start_ns - origin_ns) / 1e9 / step) + 1
    ticks = []
    while (at_ns := origin_ns + round(first * step * 1e9)) < window.end_ns:
        ticks.append((window.x(at_ns), duration(first * step)))
        first += 1
    return tuple(ticks)


def duration(seconds: float) -> str:
    """12.5 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
