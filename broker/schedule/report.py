"""A simulated run in figures: what `digenctl simulate`, the planner and the benchmarks read."""

from dataclasses import dataclass
from fractions import Fraction

from broker.schedule.durations import Durations, Exact, Noisy
from broker.schedule.hindsight import hindsight
from broker.schedule.ideal import ideal
from broker.schedule.simulate import Run, Setup
from broker.schedule.spans import Timeline
from broker.strategies import Answer, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Ticks of `unit`. `makespans`: from commit to commit; `ideal` and `hindsight`: of all global steps together;
    `assisted`: micro-batches that the trainer generated."""

    setup: Setup
    unit: Fraction
    makespan: int
    makespans: tuple[int, ...]
    decisions: tuple[Answer, ...]
    assisted: int
    ideal: Fraction
    hindsight: int
    timeline: Timeline

    @property
    def share_of_ideal(self) -> float:
        return float(self.ideal / self.makespan)

    def seconds(self, ticks: int | Fraction) -> float:
        """In what the times were given in; correctly rounded."""
        return float(ticks * self.unit)


def simulate(setup: Setup, strategy: Strategy, *, noise: float = 0.0, seed: int = 0) -> Simulated:
    """Raises ValueError for a noise outside [0, 1)."""
    times = setup.model.times
    durations: Durations = Noisy.around(times, noise, seed) if noise else Exact(times)
    timeline = Timeline()
    run = Run.of(setup, durations, timeline)
    run.to_end(strategy)
    before = (0, *run.commits)
    parts = round(times.unit / durations.times.unit)
    return Simulated(
        setup=setup,
        unit=durations.times.unit,
        makespan=run.now,
        makespans=tuple(after - begin for begin, after in zip(before, run.commits, strict=False)),
        decisions=tuple(run.answers),
        assisted=run.total_assisted,
        ideal=ideal(setup.model, setup.micro_batches) * setup.steps * parts,
        hindsight=hindsight(setup, durations, run.now),
        timeline=timeline,
    )
