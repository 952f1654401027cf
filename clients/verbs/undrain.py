"""`digenctl undrain`."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import dry, verb


@verb("  digenctl undrain box-b\n  digenctl undrain box-b --dry-run")
@click.argument("target", metavar="NODE", shell_complete=completing.boxes_and_workers)
@dry
def command(driver: Digend, output: Output, target: str, dry_run: bool) -> None:
    """Give work again to the workers of a drained NODE, or to one worker, by its name or the beginning of one.

    A job that was paused because its trainer was drained goes back into the queue.
    """
    from clients.asking import report

    changed = driver.undrain(target, dry_run=dry_run)
    if changed.state:
        sentence = f"{changed.name} is still {changed.state}"
    else:
        sentence = f"{changed.name} is " + ("undrained" if changed.changes else "not drained")
    report(output, changed, sentence + (f": {changed.reason}" if changed.reason else ""), dry_run=dry_run)
