"""How verbs that change something tell what came of it: what was asked about first, then what else changes with it."""

from collections.abc import Iterator

from clients.output import Output
from digend.wire.replies import Changed
from digend.wire.views import Change

DRY = "nothing was changed; without --dry-run:"


def report(output: Output, changed: Changed, sentence: str, *, dry_run: bool) -> None:
    """One document with --json; else a sentence and a line for each other change."""
    output.document_if_json(
        id=changed.name, state=changed.state, reason=changed.reason, dry_run=dry_run, changes=changed.changes
    )
    if dry_run:
        output.hint(DRY)
    output.line(sentence)
    for line in others(changed):
        output.line(line)


def of_job(changed: Changed) -> str:
    """`job sweep-3 is running: pauses after global step 4 of 40 by alice`."""
    return f"job {changed.name} is {changed.state}" + (f": {changed.reason}" if changed.reason else "")


def others(changed: Changed) -> Iterator[str]:
    """What changes beside it."""
    for change in changed.changes:
        if change.name != changed.name:
            yield f"  {_words(change)}"


def _words(change: Change) -> str:
    reason = f": {change.reason}" if change.reason else ""
    if change.kind == "worker":
        return f"{change.name} is {change.after or 'not drained any more'}{reason}"
    return f"job {change.name} is {change.after}{reason}"
