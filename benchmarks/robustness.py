"""How much of the hindsight optimum, and of the ideal, re-planned strategies reach when durations vary by 10 %.

    .venv/bin/python -m benchmarks.robustness [--seeds 10] [--write]

Strategies know the usual times only; every single task takes a factor of its own, uniform in [0.9, 1.1]. Every
combination of TIMES, B and seed is one run; figures are the worst and the median of a row. Minutes on one core.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.marked import replace_marked
from broker.schedule.named import strategy_of
from broker.schedule.report import Simulated, simulate
from broker.schedule.simulate import Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times

PAGE = Path(__file__).parents[1] / "docs/results.md"
NOISE, GOAL = 0.1, 0.97
STRATEGIES = ("planned", "bts")
SIZES = (16, 24, 32, 64, 128)
LARGE = (64, 128)
ASSISTS, UPDATES, SCORES, SWITCHES = (0.5, 1.0, 1.5), (0.1, 0.25, 0.5, 0.75, 1.0), (0.0, 0.05), (0.0, 0.1)
"""Of a micro-batch, in units of g; scoring is colocated."""
STALENESS, STEPS, STEP_SIZES = 0.25, 20, (16, 32, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="into docs/results.md")
    arguments = parser.parse_args()
    text = "\n".join(tables(range(arguments.seeds)))
    print(text)
    if arguments.write:
        replace_marked(PAGE, "robustness", text)


def tables(seeds: Iterable[int]) -> Iterator[str]:
    seeds = tuple(seeds)
    yield "| strategy | c | B | runs | share of hindsight: worst, median | of the ideal: worst, median |"
    yield "|---|---|---|---|---|---|"
    for name, switch in product(STRATEGIES, SWITCHES):
        for num in SIZES:
            runs = [_run(name, model, num, seed) for model in _models(switch) for seed in seeds]
            yield f"| `{name}` | {switch:g} | {num} | {len(runs)} | {_shares(runs)} | {_ideal(runs)} |"
    yield ""
    yield f"{STEPS} global steps with staleness {STALENESS:g}:"
    yield ""
    yield "| strategy | c | B | runs | of the ideal: worst, median |"
    yield "|---|---|---|---|---|"
    for name, switch in product(STRATEGIES, SWITCHES):
        for num in STEP_SIZES:
            runs = [_run(name, model, num, seed, STEPS) for model in _models(switch) for seed in seeds[:3]]
            yield f"| `{name}` | {switch:g} | {num} | {len(runs)} | {_ideal(runs)} |"


def _models(switch: float) -> list[Model]:
    return [
        Model(times=Times.exact(generate=1.0, assist=assist, update=update, score=score, switch=switch))
        for assist, update, score in product(ASSISTS, UPDATES, SCORES)
    ]


def _run(name: str, model: Model, num: int, seed: int, steps: int = 1) -> Simulated:
    setup = Setup(model=model, micro_batches=num, steps=steps, staleness=STALENESS if steps > 1 else 0.0)
    return simulate(setup, strategy_of(name), noise=NOISE, seed=seed)


def _shares(runs: Iterable[Simulated]) -> str:
    return _figures([run.hindsight / run.makespan for run in runs])


def _ideal(runs: Iterable[Simulated]) -> str:
    return _figures([run.share_of_ideal for run in runs])


def _figures(values: list[float]) -> str:
    below = sum(value < GOAL for value in values)
    less = f" ({below} below {100 * GOAL:.0f} %)" if below else ""
    return f"{100 * min(values):.1f}, {100 * median(values):.1f} %{less}"


if __name__ == "__main__":
    main()
