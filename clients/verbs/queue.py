"""`digenctl queue`: what waits, and for what."""

import click

from clients.api import Digend
from clients.output import Output
from clients.verb import no_header, verb
from clients.words import age
from digend.wire.views import QueueItem, QueueView

COLUMNS = ("QUEUE", "JOB", "ROLLOUT", "MICRO-BATCH", "VERSION", "AGE", "WHY")


@verb("  digenctl queue\n  digenctl queue uq --json")
@click.argument("which", metavar="[sq|uq]", required=False, type=click.Choice(["sq", "uq"]))
@no_header
def command(driver: Digend, output: Output, which: str | None) -> None:
    """List the micro-batches that wait: sq for scoring, uq for an update, both where none is named."""
    queue = driver.queue()
    items = tuple(item for item in queue.items if which in (None, item.queue))
    output.document_if_json(queue=QueueView(items=items))
    if items:
        output.table(COLUMNS, [_row(item) for item in items])
    else:
        output.hint(f"nothing waits in {which.upper() if which else 'SQ or UQ'}")


def _row(item: QueueItem) -> list[str]:
    return [
        item.queue,
        item.job,
        str(item.rollout),
        str(item.micro_batch),
        str(item.version),
        age(item.age_s),
        item.reason or "-",
    ]
