"""`digenctl dump`: all that a bug report needs, in one file."""

from pathlib import Path

import click

from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from digend.exitcodes import ExitCode

EXAMPLE = """\
  digenctl dump
  digenctl dump --out /tmp/trouble.tar.gz
  digenctl dump --no-journal --json"""


@verb(EXAMPLE, patient=True)
@click.option("--out", metavar="FILE.tar.gz", help="Where to. [default: digend-dump-HOST-TIME.tar.gz in this folder]")
@click.option("--journal/--no-journal", default=None, help="Whether to copy the driver's journal. [default: see above]")
def command(driver: Digend, output: Output, out: str | None, journal: bool | None) -> ExitCode:
    """Write what a bug report needs into one file: versions, configuration, status, records, logs, journal.

    contents.txt in it says what is there and what is missing. Values whose names say that they are secret (tokens,
    passwords) are masked, but the journal is as it is: it is left out where a job's options look like secrets, unless
    --journal is given. Works as far as it can while the driver is away; ends with 3 where a part is missing.
    """
    import socket
    import tempfile
    from datetime import UTC, datetime

    from clients.dump_file import Dump
    from clients.dump_parts import collect

    stem = f"digend-dump-{socket.gethostname()}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path = Path(out) if out else Path(f"{stem}.tar.gz")
    if not path.parent.is_dir():
        raise click.UsageError(f"--out: {path.parent} is no folder")
    if path.is_dir():
        raise click.ClickException(f"{path} cannot be written: it is a folder")
    dump = Dump(stem)
    with tempfile.TemporaryDirectory() as scratch:
        collect(driver, dump, Path(scratch), journal)
        try:
            dump.write(path)
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error
    output.document_if_json(path=str(path), parts=sorted(dump.parts), missing=dump.missing)
    output.line(str(path))
    for name, why in sorted(dump.missing.items()):
        output.hint(f"missing: {name}: {why}")
    lacking = dump.missing.keys() - ({"journal.sqlite"} if journal is False else set())
    return ExitCode.DEGRADED if lacking else ExitCode.OK
