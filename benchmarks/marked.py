"""Tables of a page that a benchmark makes: between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from pathlib import Path


def replace_marked(page: Path, name: str, text: str) -> None:
    """Raises ValueError where the page has no such marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no {begin} ... {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
