"""The pages point at what is there: files and modules they name, links, headings, commands of the Makefile."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.packaging.conftest import PACKAGES, ROOT

PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "configs").rglob("*.md")]
)
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors_of(path: Path) -> set[str]:
    """What its headings are called in links, as GitHub makes it, and the anchors it names itself."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a name="([\w-]+)">', text))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", text_of(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{page} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    pattern = rf"`((?:{'|'.join(PACKAGES)}|configs|scripts|tests|docs)/[\w./-]+)`"
    missing = [name for name in re.findall(pattern, text_of(page)) if not (ROOT / name).exists()]
    assert not missing


def test_the_table_of_the_core_has_every_module() -> None:
    rows = re.findall(r"^\| (`.*?) \|", ARCHITECTURE.partition("| module of `broker/` |")[2], flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)\*?`", row)}
    modules = {path.stem for path in (ROOT / "broker").glob("*.py")} - {"__init__", "events", "commands"}
    assert {name for name in modules if not name.startswith("harness")} <= named


def test_functions_that_are_named_exist() -> None:
    for module, function in re.findall(r"`([\w/]+\.py)`, `(\w+)`", ARCHITECTURE):
        assert re.search(rf"^ *def {function}\b", (ROOT / module).read_text(), flags=re.MULTILINE), (module, function)


def test_make_lists_every_command() -> None:
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony
    assert re.findall(r"^  ([\w-]+) ", shown, flags=re.MULTILINE) == phony[1].split()
