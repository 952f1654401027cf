"""`digenctl plan`: how to place and cut a job, and what that is worth. Needs no driver and no torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from clients import amounts
from clients.verb import overriding
from digend.exitcodes import ExitCode

if TYPE_CHECKING:
    from clients.output import Output
    from clients.planning import Request

EXAMPLE = """\b
Examples:
  digenctl plan job.toml --from-run runs/shapes-flow-grpo-001
  digenctl plan job.toml --nodes box1.toml --nodes box2.toml --generate 10 --assist 12 --update 4 --score 0.5
  digenctl plan job.toml --times times.toml --json
  digenctl plan configs/jobs/sd3-flow-grpo.toml --size sd3.5-large --memory 80
  digenctl plan job.toml --nodes box1.toml --set training.trainable=full --memory 80 --bandwidth 50
"""


@click.command("plan", epilog=EXAMPLE)
@click.argument("path", metavar="JOB.toml", type=click.Path())
@click.option(
    "--nodes",
    multiple=True,
    metavar="NODE.toml",
    type=click.Path(),
    help="A node file; may be repeated: who could work.",
)
@click.option(
    "--from-run",
    "runs",
    multiple=True,
    metavar="runs/ID",
    type=click.Path(),
    help="A run that measured; may be repeated.",
)
@click.option(
    "--times", metavar="TIMES.toml", type=click.Path(), help="Times, by pool or by worker (docs/planning.md)."
)
@click.option(
    "--generate", type=amounts.TIME, metavar="g", help="The generator pool generates a micro-batch of the job."
)
@click.option("--assist", type=amounts.TIME, metavar="h", help="The trainer generates one.")
@click.option(
    "--update", type=amounts.TIME, metavar="t", help="The trainer updates on one, at training.timestep_width."
)
@click.option("--update-sequential", type=amounts.TIME, metavar="t1", help="As --update, one timestep after another.")
@click.option("--score", type=amounts.TIME_OR_NONE, metavar="s", help="Scoring one; without it scores take no time.")
@click.option(
    "--switch", type=amounts.TIME_OR_NONE, default=0.0, metavar="c", help="The trainer changes between its two modes."
)
@click.option("--commit", type=amounts.TIME_OR_NONE, default=0.0, metavar="y", help="Optimizer step and publishing.")
@click.option("--trainer", metavar="WORKER", help="Who has to train; without it the fastest choice is made.")
@click.option("--size", metavar="NAME", help="A published model size (sd3.5-large), where its folder is not here.")
@click.option("--memory", "gib", type=amounts.GIB, metavar="GIB", help="Of every device.")
@click.option("--bandwidth", type=amounts.GB_PER_S, metavar="GB/s", help="What a rank sends to the others.")
@overriding
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version.")
def command(
    path: str,
    nodes: tuple[str, ...],
    runs: tuple[str, ...],
    times: str | None,
    trainer: str | None,
    size: str | None,
    gib: float | None,
    bandwidth: float | None,
    overrides: tuple[str, ...],
    as_json: bool,
    **given: float | None,
) -> None:
    """Plan a job: colocated or split, who trains, micro-batch size, TSP width, strategy, step times, memory, and ranks.

    Times are seconds, measured by a finished run or given; without them memory alone is planned. What does not fit
    into the memory of a device (--memory, or memory_gib of a node file) is refused with what to change. Where node
    files have several trainers, it says how many of them should be ranks of one, with whole weights or in shards, and
    how wide TSP is then. A plan changes nothing.
    """
    from clients.output import Output
    from clients.verb import failed

    output = Output(as_json=as_json)
    try:
        request, timed = _request(path, nodes, runs, times, trainer, overrides, given, size, gib, bandwidth)
        refusals = _told(output, request) if timed else _told_memory(output, request)
        if refusals and not as_json:
            _refuse(request, refusals)
    except click.ClickException:
        raise
    except Exception as error:
        click.get_current_context().exit(failed(error, output))
    if refusals:
        click.get_current_context().exit(ExitCode.BAD_CONFIG)


def _told(output: "Output", request: "Request") -> Sequence[str]:
    """Prints a plan; returns what does not fit."""
    from clients.plan_text import document, tell
    from clients.planning import planned

    told = planned(request)
    if output.as_json:
        output.document(**document(told))
    else:
        tell(output, told)
    return told.memory.refusals


def _told_memory(output: "Output", request: "Request") -> Sequence[str]:
    """Prints memory alone; returns what does not fit."""
    from clients.plan_ranks_text import ranks_document, tell_ranks
    from clients.plan_text import memory_document, tell_memory
    from clients.planning import memory_only

    memory, ranks = memory_only(request)
    if output.as_json:
        output.document(job=request.job.name, memory=memory_document(memory), ranks=ranks_document(ranks))
    else:
        tell_memory(output, memory)
        if ranks is not None:
            output.line()
            tell_ranks(output, ranks)
        output.line("step times: not planned; they come from --from-run, --times, or --generate and --update")
    return memory.refusals


def _refuse(request: "Request", refusals: Sequence[str]) -> None:
    from digend.config.errors import ConfigError, Problem

    raise ConfigError([Problem(where=request.job.name, key="", message=text) for text in refusals])


def _request(
    path: str,
    nodes: tuple[str, ...],
    runs: tuple[str, ...],
    times: str | None,
    trainer: str | None,
    overrides: tuple[str, ...],
    given: dict[str, float | None],
    size: str | None,
    gib: float | None,
    bandwidth: float | None,
) -> "tuple[Request, bool]":
    """And whether there are times."""
    from clients.planning import Request
    from clients.times_file import POOLED, TimesConfig, read_times
    from digend.job_check import read_job

    named = {name: value for name, value in given.items() if value is not None}
    flags = bool(named.keys() & set(POOLED))
    if flags + bool(times) + bool(runs) > 1:
        raise click.UsageError(
            "times come from --from-run, from --times, or from --generate and --update: give one of these"
        )
    if flags and not {"generate", "update"} <= named.keys():
        raise click.UsageError("--generate and --update are both needed")
    request = Request(
        job=read_job(path, overrides).config,
        nodes=nodes,
        runs=runs,
        times=read_times(times) if times else TimesConfig.model_validate(named) if flags else None,
        times_from=times or "given times",
        trainer=trainer,
        size=size,
        gib=gib,
        bandwidth=None if bandwidth is None else bandwidth * 1e9,
    )
    return request, flags or bool(times) or bool(runs)
