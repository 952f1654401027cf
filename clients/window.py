"""A window of a job's timeline: what each worker did in it, as pieces for the chart and in seconds. Pure.

Owns the choice of the window. Knows spans, no records and no screen.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from clients.chart import Piece
from clients.jobs import NotFound
from digend.telemetry.timeline import Phase, Span, Timeline

_FINE = ("swap",)
"""Stages with a glyph of their own, finer than the span's kind."""

PAUSES = ("load", "evaluate", "checkpoint")
WAITING = ("idle", "bubble")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """[start_ns, end_ns) of the driver's clock; `origin_ns` is the job's beginning."""

    title: str
    origin_ns: int
    start_ns: int
    end_ns: int
    spans: tuple[Span, ...]
    stagings: tuple[Span, ...] = ()

    @property
    def workers(self) -> list[str]:
        return sorted({span.worker for span in self.spans})

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def pieces(self) -> list[Piece]:
        return [piece_of(span) for span in sorted(self.spans, key=lambda span: span.start_ns)]

    def staged(self) -> list[Piece]:
        """Beside `pieces`: what workers staged meanwhile."""
        return [piece_of(span) for span in self.stagings]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """Seconds of one worker in a window by kind, and of its bubbles by cause."""

    worker: str
    window_s: float
    kinds: dict[str, float]
    causes: dict[str, float]
    staging_s: float = 0.0
    """Beside all that: how long it staged policy versions."""

    def sum(self, kinds: Sequence[str]) -> float:
        return sum(self.kinds.get(kind, 0.0) for kind in kinds)

    @property
    def work_s(self) -> float:
        return sum(self.kinds.values()) - self.sum((*PAUSES, *WAITING))

    @property
    def rest_s(self) -> float:
        """What no span explains: the driver and the wire."""
        return max(self.window_s - sum(self.kinds.values()), 0.0)

    @property
    def bubble_share(self) -> float:
        return self.kinds.get("bubble", 0.0) / self.window_s if self.window_s else 0.0


def piece_of(span: Span) -> Piece:
    cause = span.cause if span.kind == "bubble" else ""
    return Piece(span.worker, span.stage if span.stage in _FINE else span.kind, span.start_ns, span.end_ns, cause)


def window_of(timeline: Timeline, global_step: int | None, last: bool) -> Window:
    """A closed global step (from 1), the last one that is closed, or all. Raises NotFound."""
    spans = timeline.spans
    origin = min((span.start_ns for span in spans), default=0)
    if global_step is None and not last:
        end = max((span.end_ns for span in spans), default=origin)
        every = timeline.stagings
        return Window(title="all of it", origin_ns=origin, start_ns=origin, end_ns=end, spans=spans, stagings=every)
    phase = _step(timeline, global_step)
    return Window(
        title=phase.title,
        origin_ns=origin,
        start_ns=phase.start_ns,
        end_ns=phase.end_ns,
        spans=_inside(spans, phase),
        stagings=_inside(timeline.stagings, phase),
    )


def _inside(spans: Sequence[Span], phase: Phase) -> tuple[Span, ...]:
    return tuple(span for span in spans if span.end_ns > phase.start_ns and span.start_ns < phase.end_ns)


def _step(timeline: Timeline, number: int | None) -> Phase:
    """The newest of that number: a step that was made again after a restart counts."""
    steps = [phase for phase in timeline.phases if phase.kind == "step"]
    if not steps:
        raise NotFound(f"no global step of job {timeline.job} is closed yet")
    found = [phase for phase in steps if number in (None, phase.number)]
    if not found:
        raise NotFound(f"no global step {number} in job {timeline.job}: closed are 1 to {steps[-1].number}")
    return found[-1]


def times_of(pieces: Sequence[Piece], worker: str, start: int, end: int, staged: Sequence[Piece] = ()) -> WorkerTime:
    """Of that worker's pieces, in nanoseconds, cut at the window's edges."""
    kinds: defaultdict[str, float] = defaultdict(float)
    causes: defaultdict[str, float] = defaultdict(float)
    for piece in pieces:
        inside = (min(piece.end, end) - max(piece.start, start)) / 1e9
        if piece.worker != worker or inside <= 0:
            continue
        kinds[piece.kind] += inside
        if piece.cause:
            causes[piece.cause] += inside
    inside_ns = [min(piece.end, end) - max(piece.start, start) for piece in staged if piece.worker == worker]
    return WorkerTime(
        worker=worker,
        window_s=(end - start) / 1e9,
        kinds=dict(kinds),
        causes=dict(causes),
        staging_s=sum(ns for ns in inside_ns if ns > 0) / 1e9,
    )
