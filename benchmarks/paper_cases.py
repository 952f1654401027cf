"""The paper's ablation (sections 5.3 to 5.6) as cases of the schedule model: what it reports, and calibrated times.

Fitted, for each model and timestep fraction, are two numbers in units of g: t without TSP, so that +TSP over naive is
the paper's, and t with TSP, so that +TAG is. All else is assumed: B = 16 micro-batches, equal pools (h = g), and
scoring, switches, optimizer step and publishing that take no time. Everything else is predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log

from broker.planning.predictions import STALE_STEPS, quickest
from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from broker.strategies import Never

FRACTIONS = ("0.4", "0.6")
"""Share of the timesteps that is trained: the lower end of a range is taken for the first, the upper for the second."""
SCHEDULES = ("+GAP", "+TSP", "+TAG", "+TCSS")
FITTED = ("+TSP", "+TAG")
MICRO_BATCHES = 16
STALENESS = 0.5
WEAK, STRONG = 309.7, 503.8
"""Dense tensor TFLOPS of a GPU of testbed A, which generates, and of C, which trains (section 5.1)."""

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """Ranges that the paper reports: over naive by schedule, and over colocated without and with TCSS."""

    name: str
    figure: int
    over_naive: Mapping[str, Range]
    over_colocated: Range
    over_colocated_tcss: Range


PAPERS = (
    Paper(
        name="HunyuanVideo",
        figure=17,
        over_naive={"+GAP": (1.52, 1.84), "+TSP": (1.62, 2.14), "+TAG": (2.28, 3.05), "+TCSS": (2.49, 3.34)},
        over_colocated=(1.04, 1.37),
        over_colocated_tcss=(1.13, 1.49),
    ),
    Paper(
        name="Wan2.1 14B",
        figure=18,
        over_naive={"+GAP": (1.58, 1.70), "+TSP": (1.71, 2.10), "+TAG": (2.27, 2.79), "+TCSS": (2.44, 2.85)},
        over_colocated=(1.13, 1.34),
        over_colocated_tcss=(1.21, 1.45),
    ),
)
HETEROGENEOUS: Range = (1.46, 1.85)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """g = 1. `sequential`, `wide`: t without and with TSP; `faster`: the trainer's GPUs over the generators'."""

    sequential: float
    wide: float
    micro_batches: int = MICRO_BATCHES
    faster: float = 1.0

    def model(self, update: float) -> Model:
        """Rounded to a millionth of g, so that the search works on small integers."""
        return Model(
            times=Times.exact(generate=1.0, assist=round(1 / self.faster, 6), update=round(update / self.faster, 6))
        )

    def seconds(self) -> dict[str, float]:
        """A global step in units of g, by schedule. Colocated: over both pools, at the pace of the slower GPUs."""
        num, wide, sequential = self.micro_batches, self.model(self.wide), self.model(self.sequential)
        return {
            "naive": num * (1 + self.sequential / self.faster),
            "+GAP": _never(sequential, num),
            "+TSP": _never(wide, num),
            "+TAG": quickest(wide, num)[0],
            "+TCSS": _overlapping(wide, num),
            "colocated": num * (1 + self.sequential) / 2,
            "colocated with TSP": num * (1 + self.wide) / 2,
        }

    def over(self, base: str) -> dict[str, float]:
        seconds = self.seconds()
        return {schedule: seconds[base] / each for schedule, each in seconds.items()}


def _never(model: Model, num: int) -> float:
    return model.times.seconds(Run.of(Setup(model=model, micro_batches=num)).to_end(Never()))


def _overlapping(model: Model, num: int) -> float:
    """On average, once the steps overlap: the first and the last have a neighbour less."""
    run = Run.of(Setup(model=model, micro_batches=num, steps=STALE_STEPS, staleness=STALENESS))
    run.to_end(strategy_of("planned"))
    return model.times.seconds(run.commits[-2] - run.commits[0]) / (STALE_STEPS - 2)


def fitted(paper: Paper, end: int, micro_batches: int = MICRO_BATCHES) -> Case:
    """The case of one end of the paper's ranges. +TSP is exact, +TAG as near as t of two decimals gets."""
    tsp, tag = (paper.over_naive[schedule][end] for schedule in FITTED)

    def of(hundredths: int) -> Case:
        wide = hundredths / 100
        # Generation takes longer than updates, so that +TSP takes B + t: naive is B (1 + sequential).
        sequential = round(tsp * (micro_batches + wide) / micro_batches - 1, 6)
        return Case(sequential=sequential, wide=wide, micro_batches=micro_batches)

    def error(case: Case) -> float:
        naive = case.micro_batches * (1 + case.sequential)
        return abs(log(naive / quickest(case.model(case.wide), case.micro_batches)[0] / tag))

    return min(map(of, range(1, 100)), key=error)


def heterogeneous(case: Case) -> Case:
    """The same work where the trainer's GPUs are of the stronger kind. Nothing is fitted."""
    return replace(case, faster=float(round(Fraction(STRONG) / Fraction(WEAK), 3)))
