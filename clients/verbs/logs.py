"""`digenctl logs`: what the processes of this box have logged, of one job or one worker where it is named."""

from datetime import UTC, datetime

import click

from clients import amounts, completing
from clients.api import Digend
from clients.log_lines import LEVELS, since_of
from clients.output import Output
from clients.verb import verb

EXAMPLE = """\
  digenctl logs -f
  digenctl logs shapes-001 --since 10m --level warning
  digenctl logs box/trainer/0 -n 50
  digenctl logs driver --json"""


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else since_of(value, datetime.now(UTC))
    except ValueError:
        message = f"{value!r} is neither like 90s, 10m, 2h, 3d nor a date like '2026-07-31 12:00' (UTC)"
        raise click.BadParameter(message, ctx, param) from None


@verb(EXAMPLE, patient=True)
@click.argument("what", metavar="[JOB | WORKER]", required=False, shell_complete=completing.jobs_and_workers)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on, until Ctrl-C.")
@click.option("--since", callback=_moment, metavar="WHEN", help="Not older: 90s, 10m, 2h, 3d, or a date in UTC.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="This level and worse.")
@click.option("-n", "--lines", type=amounts.COUNT, help="At most so many of the newest. [default: 200]")
def command(
    driver: Digend,
    output: Output,
    what: str | None,
    follow: bool,
    since: datetime | None,
    level: str,
    lines: int | None,
) -> int:
    """Show logs of this box, of all its processes, of one worker, or of one job.

    A WORKER is a name as `digenctl nodes` has it, the beginning of one, or driver, trainer, generator-1. Under systemd
    the lines come from journalctl, by their native fields; under `digend up` from state/logs. Logs of other boxes stay
    there: then the host is named, with exit code 5. With --since there is no limit of lines unless -n sets one.
    """
    from clients.logs import Wanted, show

    limit = lines if lines is not None else None if since is not None else 200
    wanted = Wanted(what=what, follow=follow, since=since, level=level, limit=limit)
    return show(driver, output, wanted)
