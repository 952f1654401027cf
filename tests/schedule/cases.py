"""Random instances of the schedule model, seeded: half of them of round numbers, so that instants coincide."""

from fractions import Fraction
from random import Random

from broker.schedule.simulate import Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from tests.schedule.reference import Case


def ticks(**times: int) -> Times:
    return Times(**times)  # type: ignore[arg-type]  # none of them is the unit


def random_setup(rng: Random, most: int, *, steps: int = 1) -> Setup:
    """With and without s, c, y and f, both scorings, one to three servers."""
    round_numbers = rng.random() < 0.5

    def time(low: float, high: float) -> float:
        if round_numbers:
            return rng.randint(max(1, int(4 * low)), int(4 * high)) / 4
        return round(rng.uniform(low, high), 3)

    times = Times.exact(
        generate=time(1, 4),
        assist=time(0.3, 6),
        update=time(0.1, 5),
        score=0.0 if rng.random() < 0.3 else time(0.1, 4),
        switch=0.0 if rng.random() < 0.4 else time(0.1, 3),
        commit=rng.choice([0.0, 0.75]),
    )
    staleness = rng.choice([0.0, 0.25, 0.5, 1.0]) if steps > 1 else 0.0
    model = Model(times=times, servers=rng.randint(0, 3))
    return Setup(model=model, micro_batches=rng.randint(1, most), steps=steps, staleness=staleness)


def case_of(setup: Setup) -> Case:
    """The same instance for the reference, in ticks."""
    times = setup.model.times
    return Case(
        B=setup.micro_batches,
        g=Fraction(times.generate),
        h=None if times.assist is None else Fraction(times.assist),
        t=Fraction(times.update),
        s=Fraction(times.score),
        c=Fraction(times.switch),
        y=Fraction(times.commit),
        n=setup.model.servers if times.score else 0,
        f=Fraction(repr(setup.staleness)),
        steps=setup.steps,
    )
