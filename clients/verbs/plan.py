"""`digenctl plan`: how to place and cut a job, and what that is worth. Needs no driver and no torch."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from clients.plan_text import Told

EXAMPLE = """\b
Examples:
  digenctl plan job.toml --from-run runs/shapes-flow-grpo-001
  digenctl plan job.toml --nodes box1.toml --nodes box2.toml --generate 10 --assist 12 --update 4 --score 0.5
  digenctl plan job.toml --times times.toml --json
"""


@click.command("plan", epilog=EXAMPLE)
@click.argument("path", metavar="JOB.toml")
@click.option("--nodes", multiple=True, metavar="NODE.toml", help="A node file; may be repeated: who could work.")
@click.option("--from-run", "runs", multiple=True, metavar="runs/ID", help="A run that measured; may be repeated.")
@click.option("--times", metavar="TIMES.toml", help="Times, by pool or by worker (docs/planning.md).")
@click.option("--generate", type=float, metavar="g", help="The generator pool generates a micro-batch of the job.")
@click.option("--assist", type=float, metavar="h", help="The trainer generates one.")
@click.option("--update", type=float, metavar="t", help="The trainer updates on one, at training.timestep_width.")
@click.option("--update-sequential", type=float, metavar="t1", help="As --update, one timestep after another.")
@click.option("--score", type=float, metavar="s", help="Scoring one; without it scores take no time.")
@click.option("--switch", type=float, default=0.0, metavar="c", help="The trainer changes between its two modes.")
@click.option("--commit", type=float, default=0.0, metavar="y", help="Optimizer step and publishing.")
@click.option("--trainer", metavar="WORKER", help="Who has to train; without it the fastest choice is made.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the job; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version.")
def command(
    path: str,
    nodes: tuple[str, ...],
    runs: tuple[str, ...],
    times: str | None,
    trainer: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    **given: float | None,
) -> None:
    """Plan a job: colocated or split, who trains, micro-batch size, TSP width, strategy, and predicted step times.

    Times are seconds, measured by a finished run or given. A plan changes nothing.
    """
    from clients.output import Output
    from clients.plan_text import document, tell
    from clients.verb import failed

    output = Output(as_json=as_json)
    try:
        told = _plan(path, nodes, runs, times, trainer, overrides, given)
    except click.ClickException:
        raise
    except Exception as error:
        click.get_current_context().exit(failed(error, output))
    if as_json:
        output.document(**document(told))
    else:
        tell(output, told)


def _plan(
    path: str,
    nodes: tuple[str, ...],
    runs: tuple[str, ...],
    times: str | None,
    trainer: str | None,
    overrides: tuple[str, ...],
    given: dict[str, float | None],
) -> "Told":
    from clients.planning import Request, planned
    from clients.times_file import POOLED, TimesConfig, read_times
    from digend.job_check import read_job

    named = {name: value for name, value in given.items() if value is not None}
    flags = bool(named.keys() & set(POOLED))
    if flags + bool(times) + bool(runs) != 1:
        raise click.UsageError(
            "times come from --from-run, from --times, or from --generate and --update: give one of these"
        )
    if flags and not {"generate", "update"} <= named.keys():
        raise click.UsageError("--generate and --update are both needed")
    _check(named)
    request = Request(
        job=read_job(path, overrides).config,
        nodes=nodes,
        runs=runs,
        times=read_times(times) if times else TimesConfig.model_validate(named) if flags else None,
        times_from=times or "given times",
        trainer=trainer,
    )
    return planned(request)


def _check(given: dict[str, float]) -> None:
    """As `digenctl simulate` checks them. Raises UsageError."""
    from math import isfinite

    for name, value in given.items():
        option = f"--{name.replace('_', '-')} = {value:g}"
        if not isfinite(value):
            raise click.UsageError(f"{option}: must be a finite number")
        if value < 0 or (value == 0 and name in ("generate", "assist", "update", "update_sequential")):
            raise click.UsageError(f"{option}: must be greater than 0")
