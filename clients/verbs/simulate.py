"""`digenctl simulate`: what a strategy makes of given times. Needs no driver."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from clients import amounts, completing

if TYPE_CHECKING:
    from broker.schedule.report import Simulated
    from broker.schedule.simulate import Setup
    from broker.strategies import Strategy
    from clients.output import Output
    from clients.stopwatch import Timed

EXAMPLE = """\b
Examples:
  digenctl simulate --micro-batches 16 --generate 10 --assist 12 --update 4
  digenctl simulate --micro-batches 32 --generate 10 --assist 12 --update 4 --score 0.5 --switch 1 \\
      --commit 2 --staleness 0.25 --steps 4 --strategy bts --json
"""


@click.command("simulate", epilog=EXAMPLE)
@click.option("--micro-batches", type=int, required=True, metavar="B", help="Micro-batches of a global step.")
@click.option("--generate", type=amounts.TIME, required=True, metavar="g", help="The generator pool generates one.")
@click.option("--assist", type=amounts.TIME, metavar="h", help="The trainer generates one; without it there is no TAG.")
@click.option("--update", type=amounts.TIME, required=True, metavar="t", help="The trainer updates on one.")
@click.option("--score", type=amounts.TIME_OR_NONE, default=0.0, metavar="s", help="Scoring one; 0: none is needed.")
@click.option("--scoring", type=click.Choice(["colocated", "dedicated"]), default="colocated", show_default=True)
@click.option("--servers", type=click.IntRange(1, 1024), default=1, metavar="n", help="Reward processes, if dedicated.")
@click.option(
    "--switch", type=amounts.TIME_OR_NONE, default=0.0, metavar="c", help="The trainer changes between its two modes."
)
@click.option("--commit", type=amounts.TIME_OR_NONE, default=0.0, metavar="y", help="Optimizer step and publishing.")
@click.option("--staleness", type=float, default=0.0, metavar="f", help="Share of a step made one version early.")
@click.option("--steps", type=int, default=1, show_default=True, metavar="n", help="Global steps.")
@click.option("--noise", type=float, default=0.0, metavar="x", help="Durations vary, evenly, by up to this share.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="k", help="Which variation.")
@click.option(
    "--strategy",
    default="planned",
    show_default=True,
    metavar="NAME",
    shell_complete=completing.strategies,
    help="never, always, static:N, bts or planned.",
)
@click.option("--trace", type=click.Path(dir_okay=False), metavar="FILE", help="Write the timeline for Perfetto.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a schema version.")
def command(
    micro_batches: int,
    generate: float,
    assist: float | None,
    update: float,
    score: float,
    scoring: str,
    servers: int,
    switch: float,
    commit: float,
    staleness: float,
    steps: int,
    noise: float,
    seed: int,
    strategy: str,
    trace: str | None,
    as_json: bool,
) -> None:
    """Simulate the schedule of global steps.

    Times are of one micro-batch, all in the same unit; results are in it too. `ideal` and `hindsight` (the best
    makespan, all durations known beforehand) are of all global steps together, as `makespan` is.
    """
    from broker.schedule.report import simulate
    from broker.schedule.simulate import Setup
    from broker.schedule.snapshot import Model
    from broker.schedule.times import Times
    from clients.output import Output

    try:
        times = Times.exact(generate=generate, assist=assist, update=update, score=score, switch=switch, commit=commit)
        model = Model(times=times, servers=servers if scoring == "dedicated" else 0)
        setup = Setup(model=model, micro_batches=micro_batches, steps=steps, staleness=staleness)
        chosen, watch = _strategy(strategy)
        run = simulate(setup, chosen, noise=noise, seed=seed)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if trace is not None:
        _write(trace, run)
    output = Output(as_json=as_json)
    if as_json:
        output.document(**document(run, watch))
    for line in lines(run, watch):
        output.line(line)
    _tell_bubbles(output, run)


def _strategy(name: str) -> "tuple[Strategy, Timed | None]":
    from broker.schedule.bts import Bts
    from broker.schedule.named import strategy_of
    from broker.schedule.planned import Planned
    from clients.stopwatch import Timed

    strategy = strategy_of(name)
    if not isinstance(strategy, Bts | Planned):
        return strategy, None
    watch = Timed(strategy)
    return watch, watch


def _write(path: str, run: "Simulated") -> None:
    from pathlib import Path

    from clients.trace import write_simulated

    try:
        write_simulated(Path(path), run)
    except OSError as error:
        raise click.UsageError(f"--trace {path}: {error.strerror}") from error


def workers(setup: "Setup") -> list[str]:
    from broker.schedule.spans import GENERATOR, TRAINER, server

    return [GENERATOR, TRAINER, *(server(at) for at in range(setup.model.servers if setup.dedicated else 0))]


def document(run: "Simulated", watch: "Timed | None") -> dict[str, object]:
    bubbles = [
        {"worker": each.worker, "from": run.seconds(each.start), "to": run.seconds(each.end), "cause": each.cause}
        for each in run.timeline.bubbles
    ]
    return {
        "makespan": run.seconds(run.makespan),
        "makespans": [run.seconds(ticks) for ticks in run.makespans],
        "decisions": [answer.value for answer in run.decisions],
        "assisted": run.assisted,
        "ideal": run.seconds(run.ideal),
        "share_of_ideal": run.share_of_ideal,
        "hindsight": run.seconds(run.hindsight),
        "search_ms": watch.milliseconds if watch else [],
        "states": watch.states if watch else 0,
        "bubbles": bubbles,
    }


def lines(run: "Simulated", watch: "Timed | None") -> Iterator[str]:
    from shutil import get_terminal_size

    from clients.chart import chart
    from clients.simulated import pieces_of
    from clients.words import share

    end = f"{run.seconds(run.makespan):g}"
    yield from chart(pieces_of(run), 0, run.makespan, workers(run.setup), end, get_terminal_size().columns)
    yield ""
    yield f"makespan   {end}"
    if len(run.makespans) > 1:
        yield f"steps      {'  '.join(f'{run.seconds(ticks):g}' for ticks in run.makespans)}"
    yield f"ideal      {run.seconds(run.ideal):g}, {share(run.share_of_ideal)} of it reached"
    yield f"hindsight  {run.seconds(run.hindsight):g}, {share(run.hindsight / run.makespan)} of it reached"
    yield f"TAG        {run.assisted} of {run.setup.micro_batches * run.setup.steps} micro-batches"
    if watch is not None and watch.milliseconds:
        yield f"searches   {_searches(watch)}"


def _searches(watch: "Timed") -> str:
    from statistics import median

    times = watch.milliseconds
    past = f", {watch.exhausted} ended by the budget" if watch.exhausted else ""
    return f"{len(times)}, median {median(times):.2f} ms, longest {max(times):.2f} ms, {watch.states} states{past}"


def _tell_bubbles(output: "Output", run: "Simulated") -> None:
    from clients.words import share

    sums: dict[tuple[str, str], int] = {}
    for bubble in run.timeline.bubbles:
        key = bubble.worker, bubble.cause
        sums[key] = sums.get(key, 0) + bubble.end - bubble.start
    rows: Sequence[Sequence[str]] = [
        (worker, cause, f"{run.seconds(ticks):g}", share(ticks / run.makespan))
        for (worker, cause), ticks in sorted(sums.items())
    ]
    output.line()
    output.table(("WORKER", "WAITS FOR", "TIME", "SHARE"), rows)
