"""A change of any message, or of what it is made of, needs another protocol number (docs/protocol.md, Versions).

`protocol-N.txt` holds the fields of protocol N, a line each. After raising `PROTOCOL`, and the number in
docs/protocol.md, put the new file in the place of the old: `python -m tests.wire.test_protocol_number`.
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any, get_args, get_type_hints

from digend.wire import verbs
from digend.wire.protocol import PROTOCOL

FOLDER = Path(__file__).parent
FILE = FOLDER / f"protocol-{PROTOCOL}.txt"
MESSAGES = verbs.TO_DRIVER | verbs.TO_WORKER | verbs.TO_CLIENT | verbs.TO_OWNER | verbs.FROM_OWNER


def types_in(hint: Any) -> Iterator[type]:
    """The dataclasses that a type hint names, and those of their fields."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
        for inner in get_type_hints(hint).values():
            yield from types_in(inner)
    for arg in get_args(hint):
        yield from types_in(arg)


def listing() -> list[str]:
    """`Goodbye.reason: str`, in order of names; with a `?` where a field may be left out."""
    types = {inner for message in MESSAGES for inner in types_in(message)}
    return sorted(line for cls in types for line in _lines(cls))


def _lines(cls: type) -> Iterator[str]:
    hints = get_type_hints(cls)
    for field in fields(cls):
        mark = "" if field.default is MISSING and field.default_factory is MISSING else "?"
        yield f"{cls.__name__}.{field.name}{mark}: {_words(hints[field.name])}"


def _words(hint: Any) -> str:
    """Without modules: a type that moves stays what it is."""
    name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"(\w+\.)+(?=\w)", "", name)


def test_the_messages_are_those_of_the_number() -> None:
    assert FILE.exists(), f"no {FILE.name}: python -m {__name__}"
    before, now = FILE.read_text(encoding="utf-8").splitlines(), listing()
    changes = [line for line in ndiff(before, now) if line[0] in "+-"]
    assert not changes, f"these changes need another protocol number than {PROTOCOL}; {__doc__}"


def test_one_number_is_held() -> None:
    assert [path.name for path in FOLDER.glob("protocol-*.txt")] == [FILE.name]


if __name__ == "__main__":
    for old in FOLDER.glob("protocol-*.txt"):
        old.unlink()
    FILE.write_text("\n".join(listing()) + "\n", encoding="utf-8")
