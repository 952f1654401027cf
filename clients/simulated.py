"""A simulated run for the chart: tasks and bubbles as pieces, in ticks. Pure."""

from collections.abc import Iterator

from broker.schedule.report import Simulated
from clients.chart import BUBBLE, Piece


def pieces_of(run: Simulated) -> list[Piece]:
    """In order of time."""
    return sorted(_pieces(run), key=lambda piece: piece.start)


def _pieces(run: Simulated) -> Iterator[Piece]:
    for span in run.timeline.spans:
        yield Piece(span.worker, span.label, span.start, span.end)
    for bubble in run.timeline.bubbles:
        yield Piece(bubble.worker, BUBBLE, bubble.start, bubble.end, bubble.cause)
