"""A timeline as a chart of characters: one row a worker, one column a slice of time. Pure."""

from collections.abc import Sequence

from broker.schedule.spans import Span

GLYPHS = {"generate": "█", "assist": "▓", "score": "░", "update": "▄", "switch": "×", "commit": "◆"}
IDLE = "·"
MEANINGS = {
    "generate": "generate",
    "assist": "TAG",
    "score": "score",
    "update": "update",
    "switch": "switch",
    "commit": "optimizer step and publish",
}


def chart(spans: Sequence[Span], end: int, workers: Sequence[str], end_text: str, width: int) -> list[str]:
    """Rows of at most `width` characters, the axis, and the legend of what occurs.

    A column shows what fills most of its slice; a commit is always shown, as a global step ends with it.
    """
    label = max(len(worker) for worker in workers) + 2
    columns = max(10, width - label)
    rows = [worker.ljust(label) + _row([s for s in spans if s.worker == worker], end, columns) for worker in workers]
    axis = " " * label + "0" + end_text.rjust(columns - 1)
    seen = {span.label for span in spans}
    legend = [f"{GLYPHS[name]} {text}" for name, text in MEANINGS.items() if name in seen]
    return [*rows, axis, *_wrapped([*legend, f"{IDLE} idle"], label, columns)]


def _wrapped(entries: Sequence[str], indent: int, width: int) -> list[str]:
    lines = [entries[0]]
    for entry in entries[1:]:
        if len(lines[-1]) + 2 + len(entry) > width:
            lines.append(entry)
        else:
            lines[-1] += f"  {entry}"
    return [" " * indent + line for line in lines]


def _row(spans: Sequence[Span], end: int, columns: int) -> str:
    """Times are compared multiplied by `columns`, so that slices have whole bounds."""
    cells = []
    at = 0
    for column in range(columns):
        begin, until = column * end, (column + 1) * end
        while at < len(spans) and spans[at].end * columns <= begin:
            at += 1
        filled = {"": 0}
        for span in spans[at:]:
            if span.start * columns >= until:
                break
            part = min(until, span.end * columns) - max(begin, span.start * columns)
            filled[span.label] = filled.get(span.label, 0) + part
        filled[""] = end - sum(filled.values())
        most = "commit" if "commit" in filled else max(filled, key=lambda name: filled[name])
        cells.append(GLYPHS.get(most, IDLE))
    return "".join(cells)
