"""Columns of the tables that verbs list: which there are, and which a person chose with -o.

Owns the language of -o. Knows no views and prints nothing. Invariant: a column's name is its header in lower case, so
that what is read in a table can be asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

WIDE = "wide"


@dataclass(frozen=True, slots=True)
class Column:
    """`cell` makes the text of one row of it; `wide` ones are shown only where they are asked for."""

    name: str
    cell: Callable[[Any], str]
    wide: bool = False


class UnknownColumn(ValueError):
    """No column of that name; the message has the nearest, and all."""


def columns_of(every: Sequence[Column], wanted: str | None) -> tuple[Column, ...]:
    """The columns that -o means: `id,state` these, `wide` all, `+pid` the usual ones and this; the usual ones for None.

    Raises UnknownColumn.
    """
    usual = [column for column in every if not column.wide]
    names = [name.strip() for name in (wanted or "").lower().split(",") if name.strip()]
    chosen = usual if not names or names[0].startswith("+") else []
    for name in names:
        chosen = [*chosen, *(every if name == WIDE else [_named(every, name.removeprefix("+"))])]
    return tuple(dict.fromkeys(chosen))


def _named(every: Sequence[Column], name: str) -> Column:
    by_name = {column.name: column for column in every}
    if name in by_name:
        return by_name[name]
    near = get_close_matches(name, by_name, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UnknownColumn(f"no column {name!r}{hint} (columns: {', '.join(by_name)}; wide: all of them)")
