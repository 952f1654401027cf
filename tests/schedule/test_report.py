"""Ideal, hindsight and noise; what a simulated run is measured against."""

from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from broker.schedule.durations import Durations, Exact, Noisy
from broker.schedule.hindsight import hindsight
from broker.schedule.ideal import ideal
from broker.schedule.named import strategy_of
from broker.schedule.report import simulate
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from broker.strategies import Answer
from tests.schedule.cases import random_setup

EVERY = ("never", "always", "static:2", "bts", "planned")


def shortest(run: Run) -> int:
    """By trying every order, without memory of what was met before."""
    view = run.question()
    if view is None:
        return run.now
    options = [Answer.UPDATE if view.ready else Answer.WAIT] + [Answer.TAG] * (view.pending > 0)
    ends = []
    for option in options:
        branch = run.copy()
        branch.answer(option)
        ends.append(shortest(branch))
    return min(ends)


def test_hindsight_is_the_optimum_of_one_noisy_step() -> None:
    rng = Random("hindsight")
    for seed in range(120):
        setup = random_setup(rng, 5)
        durations = Noisy.around(setup.model.times, 0.9, seed)
        assert hindsight(setup, durations, 10**12) == shortest(Run.of(setup, durations)), setup


def test_hindsight_of_exact_durations_is_what_planned_reaches() -> None:
    rng = Random("exact")
    for _ in range(60):
        setup = random_setup(rng, 40)
        durations = Exact(setup.model.times)
        run = Run.of(setup, durations)
        assert run.to_end(strategy_of("planned")) == hindsight(setup, durations, 10**12)


def test_no_strategy_beats_hindsight_or_ideal() -> None:
    rng = Random("beaten")
    for seed in range(60):
        setup = random_setup(rng, 12, steps=3)
        for name in EVERY:
            run = simulate(setup, strategy_of(name), noise=0.2 * (seed % 2), seed=seed)
            assert run.hindsight <= run.makespan, setup
            if seed % 2 == 0 and setup.staleness == 0:
                assert run.ideal <= run.makespan, setup


def test_without_staleness_hindsight_holds_for_all_strategies() -> None:
    rng = Random("all")
    for seed in range(25):
        setup = Setup(model=random_setup(rng, 1).model, micro_batches=9, steps=3)
        durations: Durations = Noisy.around(setup.model.times, 0.3, seed)
        bound = hindsight(setup, durations, 10**15)
        assert all(Run.of(setup, durations).to_end(strategy_of(name)) >= bound for name in EVERY)


def test_ideal_by_hand() -> None:
    """t = g = h: two thirds are the generator's, and 16 micro-batches take 17 slots instead of 16."""
    equal = Model(times=Times(generate=3, assist=3, update=3))
    assert ideal(equal, 16) == Fraction(48)
    run = simulate(Setup(model=equal, micro_batches=16), strategy_of("planned"))
    assert run.share_of_ideal == pytest.approx(16 / 17)
    assert f"{run.share_of_ideal:.3f}" == "0.941"


def test_ideal_in_its_corners() -> None:
    assert ideal(Model(times=Times(generate=10, update=4)), 8) == 80
    assert ideal(Model(times=Times(generate=1, assist=100, update=50)), 8) == 400
    assert ideal(Model(times=Times(generate=10, assist=10, update=1, score=15)), 4) == 60
    assert ideal(Model(times=Times(generate=10, assist=10, update=1, score=90), servers=2), 4) == 180
    assert ideal(Model(times=Times(generate=2, assist=2, update=1, score=1)), 4) == 8


def test_noise_repeats_and_depends_on_nothing_but_the_task() -> None:
    times = Times.exact(generate=1.0, update=0.5)
    first, again = Noisy.around(times, 0.1, 3), Noisy.around(times, 0.1, 3)
    draws = [first.ticks("generate", 0, index) for index in range(200)]
    assert draws == [again.ticks("generate", 0, index) for index in reversed(range(200))][::-1]
    assert len(set(draws)) > 190
    assert draws != [Noisy.around(times, 0.1, 4).ticks("generate", 0, index) for index in range(200)]
    assert all(0.9 <= first.times.seconds(draw) <= 1.1 for draw in draws)
    assert 0.98 < sum(first.times.seconds(draw) for draw in draws) / 200 < 1.02


@pytest.mark.parametrize("noise", [-0.1, 1.0, float("nan")])
def test_noise_has_bounds(noise: float) -> None:
    with pytest.raises(ValueError, match=r"^noise = "):
        Noisy.around(Times(generate=1, update=1), noise, 0)


def test_the_timeline_accounts_for_every_tick_of_every_worker() -> None:
    rng = Random("accounts")
    for seed in range(40):
        setup = random_setup(rng, 10, steps=2)
        run = simulate(setup, strategy_of("always"), noise=0.3 * (seed % 2), seed=seed)
        for worker in ("generator", "trainer", *(f"reward/{at}" for at in range(setup.model.servers))):
            busy = [(span.start, span.end) for span in run.timeline.spans if span.worker == worker]
            idle = [(gap.start, gap.end) for gap in run.timeline.bubbles if gap.worker == worker]
            pieces = sorted(busy + idle)
            if not pieces:
                assert setup.model.times.score == 0
                continue
            assert pieces[0][0] == 0
            assert all(before[1] == after[0] for before, after in pairwise(pieces)), setup
            assert pieces[-1][1] >= run.makespan


def test_makespans_add_up() -> None:
    setup = Setup(model=Model(times=Times(generate=10, assist=9, update=4)), micro_batches=8, steps=3, staleness=0.5)
    run = simulate(setup, strategy_of("planned"))
    assert sum(run.makespans) == run.makespan
    assert len(run.makespans) == 3


@pytest.mark.parametrize(("field", "value"), [("micro_batches", 0), ("steps", 0), ("staleness", 1.5)])
def test_a_setup_is_checked(field: str, value: float) -> None:
    given = {"model": Model(times=Times(generate=1, update=1)), "micro_batches": 4}
    with pytest.raises(ValueError, match=f"^{field} = "):
        Setup(**(given | {field: value}))  # type: ignore[arg-type]


@pytest.mark.matrix
@pytest.mark.parametrize("num", [16, 32, 64, 128])
@pytest.mark.parametrize("strategy", ["bts", "planned"])
def test_under_noise_replanning_stays_near_hindsight(num: int, strategy: str) -> None:
    """Without switch costs, where bts and planned have the same optimum."""
    times = Times.exact(generate=10.0, assist=11.0, update=4.0, score=0.5, commit=1.0)
    setup = Setup(model=Model(times=times), micro_batches=num)
    for seed in range(20):
        run = simulate(setup, strategy_of(strategy), noise=0.1, seed=seed)
        assert run.hindsight / run.makespan >= 0.97, seed
