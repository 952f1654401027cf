"""The bounds beside benchmarks/robustness.py: equal to trying everything, and what they say of 97 % at B = 16."""

from random import Random

from benchmarks.robustness_limits import answer_bound, eager_hindsight, optimum_of_steps
from broker.schedule.durations import Exact, Noisy
from broker.schedule.exhaustive import optimum
from broker.schedule.hindsight import hindsight
from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from tests.schedule.cases import random_setup


def without_commit(setup: Setup) -> bool:
    return setup.model.times.commit == 0


def ended(setup: Setup, strategy: str) -> int:
    return Run.of(setup).to_end(strategy_of(strategy))


def test_the_best_of_several_steps_is_the_exhaustive_one_of_one() -> None:
    rng = Random("limits of one step")
    for _ in range(40):
        setup = random_setup(rng, 7)
        assert optimum_of_steps(setup) == optimum(setup, eager=False).end, setup


def test_no_strategy_is_better_than_the_best_of_several_steps() -> None:
    rng = Random("limits of several steps")
    reached = 0
    for _ in range(25):
        setup = random_setup(rng, 5, steps=3)
        best, planned = optimum_of_steps(setup), ended(setup, "planned")
        assert best <= min(planned, ended(setup, "bts"), ended(setup, "always"))
        reached += best == planned
    assert 5 < reached < 25


def test_the_class_of_bts_is_that_of_the_exhaustive_search() -> None:
    rng = Random("limits of the class")
    setups = [setup for setup in (random_setup(rng, 7) for _ in range(80)) if without_commit(setup)]
    assert len(setups) > 20
    for setup in setups:
        durations, longest = Exact(setup.model.times), ended(setup, "never") + 1
        assert eager_hindsight(setup, durations, longest) == optimum(setup, eager=True).end, setup


def test_with_noise_the_class_is_between_hindsight_and_bts() -> None:
    model = Model(times=Times.exact(generate=1.0, assist=0.5, update=0.5, score=0.05, switch=0.1))
    setup = Setup(model=model, micro_batches=12)
    for seed in range(10):
        durations = Noisy.around(model.times, 0.1, seed)
        found = Run.of(setup, durations).to_end(strategy_of("bts"))
        own = eager_hindsight(setup, durations, found)
        assert hindsight(setup, durations, found) <= own <= found


def test_no_strategy_can_be_sure_of_97_percent_of_hindsight_at_16_micro_batches() -> None:
    """TAG at once loses where updates turn out long and generation short, WAIT where it is the other way round."""
    dear = Model(times=Times.exact(generate=1.0, assist=1.5, update=1.0, score=0.05, switch=0.1))
    assert answer_bound(Setup(model=dear, micro_batches=16)) < 0.953
    cheap = Model(times=Times.exact(generate=1.0, assist=1.0, update=0.25))
    assert answer_bound(Setup(model=cheap, micro_batches=16)) > 0.99
