"""What digenctl prints: tables and lines for people, one JSON document for programs.

Knows views only as dataclasses. Invariants: with --json, stdout has JSON and nothing else; colour and the width of a
terminal play a role only where stdout is one; what others wrote moves no cursor.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import click

from clients.columns import Column, columns_of
from digend.printable import printable
from digend.wire.views import SCHEMA_VERSION


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """`as_json` for programs; `header` whether a table has its first line; `columns` as -o has them."""

    as_json: bool = False
    header: bool = True
    columns: str | None = None

    @property
    def on_terminal(self) -> bool:
        return sys.stdout.isatty() and not self.as_json

    def document(self, **fields: object) -> None:
        """One JSON document, on one line."""
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **plain(fields)}, ensure_ascii=False))

    def document_if_json(self, **fields: object) -> None:
        if self.as_json:
            self.document(**fields)

    def view(self, view: object) -> None:
        """A view as a document: its fields beside the schema version."""
        self.document(**plain(view))

    def line(self, text: str = "") -> None:
        """A line for people; nothing with --json."""
        if not self.as_json:
            click.echo(printable(text, keep="\n\t"))

    def hint(self, text: str) -> None:
        """What may be done next, on stderr, so that it never gets into a pipe."""
        if not self.as_json:
            click.echo(printable(text, keep="\n\t"), err=True)

    def listing(self, columns: Sequence[Column], items: Sequence[Any]) -> None:
        """A table with a row an item, of the columns that are wanted. Raises UnknownColumn."""
        chosen = columns_of(columns, self.columns)
        names = [column.name.upper() for column in chosen]
        self.table(names, [[column.cell(item) for column in chosen] for item in items])

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self.as_json:
            return
        rows = [[printable(cell) for cell in row] for row in rows]
        if self.on_terminal:
            from clients.screen import print_table

            print_table(columns, rows, self.header)
            return
        for row in text_table([columns, *rows] if self.header else rows):
            click.echo(row)


def plain(value: Any) -> Any:
    """A view as JSON has it: dataclasses are objects, tuples are arrays, numbers that are not finite are null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns set by spaces, two at least, nothing at the end of a line: for pipes and logs."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
