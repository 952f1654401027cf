"""`digenctl queue`: what waits, and for what."""

import click

from clients.api import Digend
from clients.columns import Column
from clients.output import Output
from clients.verb import tabular, verb
from clients.words import age, size
from digend.wire.views import QueueView

COLUMNS = (
    Column("queue", lambda item: item.queue),
    Column("job", lambda item: item.job),
    Column("rollout", lambda item: str(item.rollout)),
    Column("micro-batch", lambda item: str(item.micro_batch)),
    Column("version", lambda item: str(item.version)),
    Column("age", lambda item: age(item.age_s)),
    Column("held", lambda item: size(item.num_bytes), wide=True),
    Column("by", lambda item: " ".join(item.held_by) or "-", wide=True),
    Column("reason", lambda item: item.reason or "-"),
)


@verb("  digenctl queue\n  digenctl queue uq -o micro-batch,age,reason\n  digenctl queue sq --json")
@click.argument("which", metavar="[sq|uq]", required=False, type=click.Choice(["sq", "uq"]))
@tabular(COLUMNS)
def command(driver: Digend, output: Output, which: str | None) -> None:
    """List the micro-batches that wait: sq for scoring, uq for an update, both where none is named.

    The first line of each queue is served next; REASON says what it waits for.
    """
    queue = driver.queue()
    items = tuple(item for item in queue.items if which in (None, item.queue))
    output.document_if_json(queue=QueueView(items=items))
    if items:
        output.listing(COLUMNS, items)
    else:
        output.hint(f"nothing waits in {which.upper() if which else 'SQ or UQ'}")
