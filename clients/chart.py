"""A timeline as a chart of characters: one row a worker, one column a slice of time. Pure.

Owns the glyphs of all timelines on a screen. Invariant: a cell shows what fills most of its slice, but for what ends a
global step, which is shown wherever it is. A bubble's glyph is a digit that stands for its cause, the same in every
chart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

GLYPHS = {
    "generate": "█",
    "assist": "▓",
    "decode": "▒",
    "encode": "e",
    "score": "░",
    "update": "▄",
    "optimizer": "◆",
    "commit": "◆",
    "publish": "▲",
    "stage": "↓",
    "swap": "×",
    "switch": "⇄",
    "fetch": "←",
    "load": "l",
    "evaluate": "E",
    "checkpoint": "C",
    "other": "?",
    "dispatch": "-",
    "idle": "·",
}
MEANINGS = {
    "assist": "TAG",
    "commit": "optimizer step and publish",
    "optimizer": "optimizer step",
    "swap": "swap weights",
    "switch": "switch between training and generating",
    "stage": "stage weights",
    "fetch": "fetch tensors",
    "load": "load the model",
}
"""Where the kind is no word for people."""

NOTHING = " "
STAGING = "  staging"
"""The row below a worker's: policy versions that come while it works."""
BUBBLE = "bubble"
_ALWAYS = ("commit", "optimizer", "checkpoint")
DIGITS = {"generation": "1", "update": "2", "reward": "3", "weights": "4", "encoding of prompts": "5"}
_OTHERS = "6789"
"""Of causes that are rare, by name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`worker` was at `kind` from `start` to `end`, in any unit; `cause` is that of a bubble."""

    worker: str
    kind: str
    start: int
    end: int
    cause: str = ""

    @property
    def what(self) -> str:
        return f"{BUBBLE}: {self.cause}" if self.kind == BUBBLE else self.kind


def cells(pieces: Sequence[Piece], start: int, end: int, columns: int) -> list[str]:
    """What fills each column of [start, end), "" for nothing. `pieces` are one worker's, in order of time."""
    filled: list[Counter[str]] = [Counter() for _ in range(columns)]
    length = max(end - start, 1)
    for piece in pieces:
        begin, until = max(piece.start, start) - start, min(piece.end, end) - start
        if until <= begin:
            continue
        for column in range(begin * columns // length, min((until * columns - 1) // length + 1, columns)):
            # Multiplied by `columns`, so that slices have whole bounds.
            part = min(until * columns, (column + 1) * length) - max(begin * columns, column * length)
            filled[column][piece.what] += part
    return [_most(each, length) for each in filled]


def staged_cells(pieces: Sequence[Piece], worker: str, start: int, end: int, columns: int) -> list[str]:
    """Every column of [start, end) in which the worker staged, however shortly."""
    length, row = max(end - start, 1), [""] * columns
    for piece in pieces:
        if piece.worker == worker and piece.end > start and piece.start < end:
            first = max(piece.start - start, 0) * columns // length
            last = max(first + 1, -(-(min(piece.end, end) - start) * columns // length))
            row[first:last] = ["stage"] * (min(last, columns) - first)
    return row


def _most(filled: Counter[str], length: int) -> str:
    for kind in _ALWAYS:
        if kind in filled:
            return kind
    filled[""] = length - sum(filled.values())
    return max(filled, key=lambda kind: filled[kind])


def bubble_glyphs(pieces: Iterable[Piece]) -> dict[str, str]:
    """A glyph for each cause there is."""
    causes = {piece.cause for piece in pieces if piece.kind == BUBBLE}
    others = sorted(causes - DIGITS.keys())
    marks = DIGITS | {cause: _OTHERS[min(at, len(_OTHERS) - 1)] for at, cause in enumerate(others)}
    return {f"{BUBBLE}: {cause}": mark for cause, mark in marks.items() if cause in causes}


def glyph(what: str, bubbles: Mapping[str, str]) -> str:
    """Of a cell."""
    return NOTHING if not what else bubbles.get(what) or GLYPHS.get(what, "?")


def legend(seen: Iterable[str], bubbles: Mapping[str, str]) -> list[tuple[str, str]]:
    """(what, `█ generate`) of all that occurs, work first."""
    present = set(seen)
    kinds = [kind for kind in GLYPHS if kind in present]
    told = [(kind, f"{GLYPHS[kind]} {MEANINGS.get(kind, kind)}") for kind in kinds]
    return told + [(what, f"{mark} {what}") for what, mark in bubbles.items() if what in present]


def chart(
    pieces: Sequence[Piece],
    start: int,
    end: int,
    workers: Sequence[str],
    axis: str,
    width: int,
    staged: Sequence[Piece] = (),
) -> list[str]:
    """Rows of at most `width` characters, the axis from 0 to `axis`, and the legend of what occurs. `staged`: what
    workers stage while they work, on a row below their own."""
    label = max((len(worker) for worker in (*workers, *([STAGING] if staged else ()))), default=0) + 2
    columns = max(10, width - label)
    bubbles = bubble_glyphs(pieces)
    rows, seen = [], {piece.what for piece in pieces if piece.end > start and piece.start < end}
    for worker in workers:
        row = cells([piece for piece in pieces if piece.worker == worker], start, end, columns)
        rows.append(worker.ljust(label) + "".join(glyph(what, bubbles) for what in row).rstrip())
        below = staged_cells(staged, worker, start, end, columns)
        if any(below):
            rows.append(STAGING.ljust(label) + "".join(glyph(what, {}) for what in below).rstrip())
            seen |= set(below)
    entries = [text for _, text in legend(seen, bubbles)]
    return [*rows, " " * label + "0" + axis.rjust(columns - 1), *wrapped(entries, label, columns)]


def wrapped(entries: Sequence[str], indent: int, width: int) -> list[str]:
    """Entries beside each other, in as many lines as that takes."""
    lines: list[str] = []
    for entry in entries:
        if not lines or len(lines[-1]) + 2 + len(entry) > width:
            lines.append(entry)
        else:
            lines[-1] += f"  {entry}"
    return [" " * indent + line for line in lines]
