"""`digenctl drain`: before a box is taken down."""

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import brief, dry, verb

EXAMPLE = """  digenctl drain box-b -m 'new kernel' --wait
  digenctl drain box-b/generator/0 -m 'its fan is loud'
  digenctl drain box-b -m 'new kernel' --dry-run"""


@verb(EXAMPLE)
@click.argument("target", metavar="NODE", shell_complete=completing.boxes_and_workers)
@click.option(
    "-m",
    "--message",
    "why",
    required=True,
    callback=brief,
    metavar="WHY",
    help="Shown beside the node till it is undrained.",
)
@click.option("--wait", "waited", is_flag=True, help="Until nobody needs the node any more.")
@dry
def command(driver: Digend, output: Output, target: str, why: str, waited: bool, dry_run: bool) -> int:
    """Give no new work to the workers of a NODE, or to one worker, by its name or the beginning of one.

    Running tasks finish, and what their results are needed for is done before the node counts as drained. A job whose
    trainer is drained finishes its global step and is paused until `digenctl undrain`. It stays drained, whatever
    restarts.
    """
    if not why.strip():
        raise click.BadParameter("say why, for whoever finds it drained", param_hint="-m")
    from clients.asking import report
    from clients.draining import wait_until_drained

    changed = driver.drain(target, why, dry_run=dry_run)
    if waited and not dry_run:
        return wait_until_drained(driver, output, changed)
    reason = f": {changed.reason}" if changed.reason else ""
    report(output, changed, f"{changed.name} is {changed.state}{reason}", dry_run=dry_run)
    return 0
