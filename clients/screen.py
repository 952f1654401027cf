"""Tables on a terminal: colour by state, and as wide as it is. Imports rich, so it is imported for terminals only.

Invariant: a cell's words are those of the pipe; colour says nothing that they do not. NO_COLOR and TERM=dumb are rich's
own business.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {
    "running": "green",
    "busy": "green",
    "completed": "green",
    "preparing": "cyan",
    "queued": "cyan",
    "idle": "yellow",
    "held": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "cancelled": "yellow",
    "torpid": "red",
    "lost": "red",
    "failed": "red",
}
"""Of a state, wherever it stands in a table."""

_FREE_TEXT = ("reason", "doing")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], header: bool) -> None:
    """Free text is wrapped where the terminal is narrow, names and figures are not while there is any of it."""
    table = Table(box=None, show_header=header, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column.lower() not in _FREE_TEXT, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)
