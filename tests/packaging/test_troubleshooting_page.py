"""docs/troubleshooting.md quotes what the programs print: each message of its tables is somewhere in the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from clients.main import VERBS
from tests.packaging.conftest import PACKAGES, ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)

QUOTED = re.findall(r"^\| `([^`]+)` \|", PROSE, flags=re.MULTILINE) + re.findall(r"`([^`]*…[^`]*)`", PROSE)


def texts(node: ast.AST) -> Iterator[str]:
    """Texts of a module, what is filled in shown as the page does."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


@cache
def printed() -> str:
    """All texts of the programs, a line each, without quotes: the page cannot have those inside its own."""
    modules = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    found = (text for path in modules for text in texts(ast.parse(path.read_text("utf-8"))))
    return "\n".join(text.replace("`", "").replace("\n", " ") for text in found)


@pytest.mark.parametrize("message", list(dict.fromkeys(QUOTED)))
def test_a_quoted_message_is_printed_somewhere(message: str) -> None:
    parts = [re.escape(part) for part in message.split("…")]
    assert re.search("[^\n]*".join(parts), printed()), message


def test_there_are_messages() -> None:
    assert len(set(QUOTED)) > 40
    assert not re.search(re.escape("no driver at … : there is no such pocket"), printed())


def test_what_has_no_dots_is_a_text_of_its_own() -> None:
    """A short word would be found in any text; a cause of idle time must be one."""
    lines = set(printed().splitlines())
    for word in ("generation", "reward", "weights", "encoding of prompts", "its process was replaced"):
        assert word in lines


def test_verbs_that_it_names_exist() -> None:
    named = set(re.findall(r"(?:`|^)digenctl\s+([a-z]+)", PAGE, flags=re.MULTILINE))
    assert named <= VERBS.keys()
    assert len(named) > 10
