"""`digenctl samples`: grids of samples with their prompts and rewards."""

from typing import TYPE_CHECKING

import click

from clients import amounts, completing
from clients.api import Digend
from clients.columns import Column
from clients.output import Output, plain
from clients.verb import tabular, verb
from clients.words import number
from digend.exitcodes import ExitCode

if TYPE_CHECKING:
    from clients.run_place import RunPlace
    from clients.sheets import Sheet

COLUMNS = (
    Column("step", lambda row: str(row[0].global_step)),
    Column("label", lambda row: row[0].label),
    Column("reward", lambda row: number(row[1].mean if row[1] else row[0].metrics.get("reward"))),
    Column("prompt", lambda row: row[1].prompt if row[1] else f"{len(row[0].prompts)} prompts"),
    Column("text", lambda row: row[1].text if row[1] else "-"),
    Column("rewards", lambda row: " ".join(number(each) for each in row[1].rewards) if row[1] else "-"),
    Column("sheet", lambda row: row[2]),
    Column("version", lambda row: str(row[0].version), wide=True),
)

EXAMPLE = """\
  digenctl samples
  digenctl samples shapes-001 --global-step 20 --open
  digenctl samples shapes-001 --prompt "red circle"
  digenctl samples runs/shapes-001 --json"""


@verb(EXAMPLE, patient=True)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completing.jobs)
@click.option("--global-step", type=amounts.COUNT, metavar="N", help="Prompts of the evaluation at this one.")
@click.option("--prompt", metavar="P", help="This prompt over the evaluations: its id, or part of its text.")
@click.option("--open", "opened", is_flag=True, help="Open the newest of the sheets that are listed.")
@tabular(COLUMNS)
def command(
    driver: Digend, output: Output, job: str | None, global_step: int | None, prompt: str | None, opened: bool
) -> ExitCode:
    """List sheets of samples, one an evaluation, with their rewards.

    JOB is an id, the beginning of one, or a run folder; the newest that has begun if none. With
    --global-step or --prompt a line a prompt, with the reward of each of its samples. Sheets on another box are told as
    host:path.
    """
    from clients.run_place import records_of, run_place
    from clients.sheets import chosen, sheets_of

    place = run_place(driver, job)
    sheets = chosen(sheets_of(records_of(driver, place.source)), global_step, prompt)
    if output.as_json:
        files = [place.shown(place.path / sheet.file) for sheet in sheets]
        listed = [{**plain(sheet), "file": file} for sheet, file in zip(sheets, files, strict=True)]
        output.document(job=place.job, host=place.host, here=place.here, samples=listed)
    by_prompt = global_step is not None or prompt is not None
    output.listing(COLUMNS, [row for sheet in sheets for row in _rows(place, sheet, by_prompt)])
    if opened:
        _open(output, place, sheets[-1])
    return ExitCode.OK


def _rows(place: "RunPlace", sheet: "Sheet", by_prompt: bool) -> list[tuple[object, object, str]]:
    path = place.path / sheet.file
    file = place.shown(path) if not place.here or path.is_file() else "not drawn"
    return [(sheet, each, file) for each in sheet.prompts] if by_prompt else [(sheet, None, file)]


def _open(output: Output, place: "RunPlace", sheet: "Sheet") -> None:
    from clients.jobs import NotFound

    path = place.path / sheet.file
    film = path.with_suffix(".webp")
    if not place.here:
        output.hint(f"it is on another box: scp {place.shown(path)} .")
    elif not path.is_file():
        raise NotFound(f"no sheet of global step {sheet.global_step}: {path} is missing")
    else:
        click.launch((film if film.is_file() else path).as_uri())
