"""How much of the hindsight optimum, and of the ideal, re-planned strategies reach when durations vary by 10 %.

    .venv/bin/python -m benchmarks.robustness [--seeds 34] [--write]

Strategies know the usual times only; every single task takes a factor of its own, uniform in [0.9, 1.1]. Every
combination of TIMES, B and seed is one run; figures are the least, the first percentile and the mean of a row. What no
strategy could reach is computed beside it (benchmarks/robustness_limits.py). A quarter of an hour on one core.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.marked import replace_marked
from benchmarks.robustness_limits import answer_bound, eager_hindsight, optimum_of_steps
from broker.schedule.durations import Noisy
from broker.schedule.named import strategy_of
from broker.schedule.report import Simulated, simulate
from broker.schedule.simulate import Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times

PAGE = Path(__file__).parents[1] / "docs/results.md"
NOISE, GOAL = 0.1, 0.97
STRATEGIES = ("planned", "bts")
SIZES = (16, 24, 32, 64, 128)
EAGER_SIZES, BOUND_SIZES = (16,), (16, 24)
ASSISTS, UPDATES, SCORES, SWITCHES = (0.5, 1.0, 1.5), (0.1, 0.25, 0.5, 0.75, 1.0), (0.0, 0.05), (0.0, 0.1)
"""Of a micro-batch, in units of g; scoring is colocated."""
STALENESS, STEPS, STEP_SIZES, STEP_SEEDS = 0.25, 20, (16, 32, 64), 3
_DEEP = 100_000
"""Recursion over the decisions of twenty global steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=34)
    parser.add_argument("--write", action="store_true", help="into docs/results.md")
    arguments = parser.parse_args()
    sys.setrecursionlimit(_DEEP)
    lines = []
    for line in tables(range(arguments.seeds)):
        print(line, flush=True)
        lines.append(line)
    if arguments.write:
        replace_marked(PAGE, "robustness", "\n".join(lines))


def tables(seeds: Iterable[int]) -> Iterator[str]:
    seeds = tuple(seeds)
    yield "| strategy | c | B | runs | share of hindsight | of hindsight over its own class | of the ideal |"
    yield "|---|---|---|---|---|---|---|"
    for name, switch in product(STRATEGIES, SWITCHES):
        for num in SIZES:
            runs = [(_run(name, model, num, seed), seed) for model in _models(switch) for seed in seeds]
            shares = _figures([run.hindsight / run.makespan for run, _ in runs])
            own = _own_class(runs) if name == "bts" and num in EAGER_SIZES else ""
            ideal = _ideal([run for run, _ in runs])
            yield f"| `{name}` | {switch:g} | {num} | {len(runs)} | {shares} | {own} | {ideal} |"
    yield ""
    yield "What a strategy can be sure of at most, of hindsight, whatever it is (least over the 30 kinds of times):"
    yield ""
    yield "| B | c = 0 | c = 0.1 |"
    yield "|---|---|---|"
    for num in BOUND_SIZES:
        bounds = [min(answer_bound(_setup(model, num)) for model in _models(switch)) for switch in SWITCHES]
        yield f"| {num} | {100 * bounds[0]:.1f} % | {100 * bounds[1]:.1f} % |"
    yield ""
    yield from _steps_table(seeds[:STEP_SEEDS])


def _steps_table(seeds: Iterable[int]) -> Iterator[str]:
    yield f"{STEPS} global steps with staleness {STALENESS:g}:"
    yield ""
    yield "| strategy | c | B | runs | of the ideal | of the best order, s = 0 | the best order, of the ideal |"
    yield "|---|---|---|---|---|---|---|"
    best = {
        model: optimum_of_steps(_setup(model, 16, STEPS)) for c in SWITCHES for model in _models(c) if not _s(model)
    }
    for name, switch in product(STRATEGIES, SWITCHES):
        for num in STEP_SIZES:
            runs = [_run(name, model, num, seed, STEPS) for model in _models(switch) for seed in seeds]
            told = f"| `{name}` | {switch:g} | {num} | {len(runs)} | {_ideal(runs)} |"
            yield told + (_of_best(runs, best) if num == 16 else "  |  |")


def _of_best(runs: Iterable[Simulated], best: dict[Model, int]) -> str:
    """Of the optimum of the usual times over all orders, with c; and of the ideal, which is without c, that optimum."""
    known = [run for run in runs if run.setup.model in best]
    ends = [run.seconds(run.makespan) / run.setup.model.times.seconds(best[run.setup.model]) for run in known]
    ideals = [run.seconds(run.ideal) / run.setup.model.times.seconds(best[run.setup.model]) for run in known]
    return f" {_figures([1 / end for end in ends])} | {100 * min(ideals):.1f} - {100 * max(ideals):.1f} % |"


def _s(model: Model) -> int:
    return model.times.score


def _setup(model: Model, num: int, steps: int = 1) -> Setup:
    return Setup(model=model, micro_batches=num, steps=steps, staleness=STALENESS if steps > 1 else 0.0)


def _models(switch: float) -> list[Model]:
    return [
        Model(times=Times.exact(generate=1.0, assist=assist, update=update, score=score, switch=switch))
        for assist, update, score in product(ASSISTS, UPDATES, SCORES)
    ]


def _run(name: str, model: Model, num: int, seed: int, steps: int = 1) -> Simulated:
    setup = _setup(model, num, steps)
    return simulate(setup, strategy_of(name), noise=NOISE, seed=seed)


def _own_class(runs: Iterable[tuple[Simulated, int]]) -> str:
    """Against the best of the orders that update whenever they can."""
    shares = []
    for run, seed in runs:
        durations = Noisy.around(run.setup.model.times, NOISE, seed)
        shares.append(eager_hindsight(run.setup, durations, run.makespan) / run.makespan)
    return _figures(shares)


def _ideal(runs: Iterable[Simulated]) -> str:
    return _figures([run.share_of_ideal for run in runs])


def _figures(values: list[float]) -> str:
    """The least, the first percentile, the mean, and how many are below the goal."""
    below = sum(value < GOAL for value in values)
    less = f" ({below} below {100 * GOAL:.0f} %)" if below else ""
    low, first = min(values), sorted(values)[len(values) // 100]
    return f"{100 * low:.1f}, {100 * first:.1f}, {100 * fmean(values):.2f} %{less}"


if __name__ == "__main__":
    main()
