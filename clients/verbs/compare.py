"""`digenctl compare`: two or more jobs side by side."""

import json
import tomllib
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clients import completing
from clients.api import Digend
from clients.output import Output
from clients.verb import verb
from clients.words import number, share
from digend.checkpoint_names import MANIFEST, WEIGHTS, tensor_files
from digend.exitcodes import ExitCode

if TYPE_CHECKING:
    from clients.comparison import Comparison, Finished, Line

EXAMPLE = """\
  digenctl compare shapes-001 shapes-002
  digenctl compare runs/shapes-001 runs/shapes-002 --json"""


@verb(EXAMPLE, patient=True)
@click.argument("jobs", metavar="JOB JOB...", nargs=-1, required=True, shell_complete=completing.jobs)
def command(driver: Digend, output: Output, jobs: tuple[str, ...]) -> ExitCode:
    """Compare jobs: configuration where it differs, evaluations, time by stage, bubbles, digests of weights.

    JOB is an id, the beginning of one, or a run folder, for which no driver is asked. Seconds of a stage are summed
    over workers. Digests are those of the weights in checkpoints at the same global step, where this box can read them.
    """
    from clients.comparison import compare

    if len(jobs) < 2:
        raise click.UsageError("compare takes two jobs or more")
    comparison = compare([_read(driver, job) for job in jobs])
    if output.as_json:
        output.view(comparison)
    else:
        _tell(output, comparison)
    return ExitCode.OK


def _read(driver: Digend, job: str) -> "Finished":
    from clients.comparison import read
    from clients.run_place import is_folder, records_of

    if is_folder(job):
        records = list(records_of(driver, job))
        digest_of = partial(_digest, Path(job) / "checkpoints")
        return read(Path(job).absolute().name, _table(Path(job) / "job.toml"), records, digest_of)
    driver.require_socket()
    whole = driver.job_id(job)
    return read(whole, tomllib.loads(driver.job_file(whole)), driver.all_records(whole), partial(_digest, None))


def _table(path: Path) -> dict[str, Any]:
    """A run's resolved job file; nothing where it is missing."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _digest(checkpoints: Path | None, path: str) -> str | None:
    """Of the weights, as the checkpoint's manifest says, with the number of files where that is not one; the whole
    manifest differs from job to job, which it names."""
    folder = Path(path) if checkpoints is None else checkpoints / Path(path).name
    try:
        entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        digests = [str(entries[name]["blake2b"]) for name in tensor_files(WEIGHTS, entries)]
        if len(digests) > 1:
            return f"{blake2b(''.join(digests).encode(), digest_size=16).hexdigest()}/{len(digests)}"
        return digests[0] if digests else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tell(output: Output, found: "Comparison") -> None:
    from clients.comparison import comparable, same

    _section(
        output, "CONFIGURATION", found.jobs, found.configuration, lambda value: "-" if value is None else str(value)
    )
    if not found.configuration:
        output.line("the same configuration")
    output.line()
    state = [("state", *found.states)]
    _rows(
        output, "RESULT", found.jobs, [*state, *((line.name, *map(number, line.values)) for line in found.evaluations)]
    )
    output.line()
    seconds = [(line.name, *(number(value, 1) for value in line.values)) for line in found.seconds]
    bubbles = (found.bubble_share.name, *(share(value) for value in found.bubble_share.values))
    _rows(output, "SECONDS", found.jobs, [*seconds, bubbles])
    output.line()
    for line in found.weights:
        digests = ", ".join(str(value)[:12] for value in line.values if value is not None)
        differ = f"differ ({digests})" if comparable(line) else "in different numbers of files, so not compared"
        output.line(f"weights at {line.name}: " + (f"the same ({line.values[0]})" if same(line) else differ))
    if not found.weights:
        output.line("weights: no checkpoints at the same global step that can be read on this box")


def _section(output: Output, title: str, jobs: Sequence[str], lines: "Sequence[Line]", cell: Any) -> None:
    if lines:
        _rows(output, title, jobs, [(line.name, *map(cell, line.values)) for line in lines])


def _rows(output: Output, title: str, jobs: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    output.table((title, *jobs), [list(row) for row in rows])
