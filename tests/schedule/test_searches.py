"""The searches against exhaustive ones, of the package and of the reference, which share no code."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from broker.schedule.bts import Bts, search
from broker.schedule.choice import Searching
from broker.schedule.exhaustive import optimum
from broker.schedule.named import strategy_of
from broker.schedule.planned import Planned, best
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model, Running, Snapshot
from broker.schedule.times import Times
from broker.strategies import Answer, TrainerView
from tests.schedule import reference
from tests.schedule.cases import case_of, random_setup

SEARCHING: dict[str, Searching] = {"bts": Bts(), "planned": Planned()}


def outcome(setup: Setup, strategy: str) -> tuple[int, int]:
    """(makespan, TAG)"""
    run = Run.of(setup)
    run.to_end(strategy_of(strategy))
    return run.now, run.total_assisted


def check(setup: Setup) -> None:
    eager, free = optimum(setup, eager=True), optimum(setup, eager=False)
    assert outcome(setup, "bts") == (eager.end, eager.tags), setup
    assert outcome(setup, "planned") == (free.end, free.tags), setup
    assert free.end <= eager.end <= outcome(setup, "never")[0], setup


def test_bts_and_planned_are_optima_of_a_thousand_random_instances() -> None:
    rng = Random("a thousand")
    for _ in range(1000):
        check(random_setup(rng, 10))


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(10))
def test_bts_and_planned_are_optima_of_ten_thousand_random_instances(seed: int) -> None:
    rng = Random(f"ten thousand {seed}")
    for _ in range(1000):
        check(random_setup(rng, 12))


@pytest.mark.parametrize("eager", [True, False])
def test_the_exhaustive_search_equals_brute_force_on_the_reference(eager: bool) -> None:
    rng = Random(f"brute {eager}")
    for _ in range(150):
        setup = random_setup(rng, 5 if eager else 4)
        found = optimum(setup, eager=eager)
        end, tags = reference.brute(case_of(setup), eager)
        assert (Fraction(found.end), found.tags) == (end, tags), setup


@pytest.mark.parametrize("strategy", ["bts", "planned"])
def test_what_is_predicted_is_what_happens(strategy: str) -> None:
    """At every question of a run the predicted end is the same instant, as long as estimates are right."""
    rng = Random(f"predicted {strategy}")
    chosen = SEARCHING[strategy]
    for _ in range(60):
        run = Run.of(random_setup(rng, 40))
        ends = set()
        while (view := run.question()) is not None:
            choice = chosen.search(view)
            if choice.end is not None:
                ends.add(run.now + choice.end)
                assert choice.without is not None
                assert choice.end <= choice.without
            run.answer(choice.answer)
        assert ends <= {run.now - run.setup.model.times.commit}


def test_the_prediction_of_only_updating_is_what_never_does() -> None:
    rng = Random("without")
    for _ in range(100):
        setup = random_setup(rng, 40)
        view = Run.of(setup).question()
        assert view is not None
        if view.snapshot is None or not view.pending:
            continue
        without = best(setup.model, view.snapshot).without
        assert without + setup.model.times.commit == outcome(setup, "never")[0], setup


def test_with_staleness_the_prediction_counts_what_the_generator_does_ahead() -> None:
    rng = Random("ahead")
    for _ in range(150):
        run = Run.of(random_setup(rng, 12, steps=3))
        for _step in range(3):
            ends = set()
            while (view := run.question()) is not None:
                choice = Planned().search(view)
                if choice.end is not None:
                    ends.add(run.now + choice.end)
                run.answer(choice.answer)
            assert ends <= {run.now - run.setup.model.times.commit}, run.setup


def first_bubble(model: Model, num: int) -> Snapshot:
    return Snapshot(pending=num - 1, generator=Running(model.times.generate))


def test_bts_has_no_recursion_and_stays_fast_on_round_times() -> None:
    model = Model(times=Times(generate=10, assist=10, update=1))
    choice = search(model, first_bubble(model, 5000))
    assert choice.states < 5000
    assert not choice.exhausted


@pytest.mark.parametrize("strategy", ["bts", "planned"])
def test_no_situation_is_too_odd(strategy: str) -> None:
    """After losses a live job is where no run of the model ever is: predictions are rough, answers still possible."""
    rng = Random(f"odd {strategy}")
    for _ in range(1000):
        model = random_setup(rng, 1).model
        times = model.times
        generator = Running(
            rng.randint(1, 2 * times.generate), rng.random() < 0.3 and times.score > 0, rng.random() < 0.3
        )
        snapshot = Snapshot(
            pending=rng.randint(0, 6),
            queued=rng.randint(0, 3),
            ready=rng.randint(0, 2),
            generator=generator,
            servers=tuple(
                Running(rng.randint(1, max(1, times.score)), True, rng.random() < 0.3)
                for _ in range(rng.randint(0, model.servers))
            ),
            generating=rng.random() < 0.5,
            stale=rng.randint(0, 2),
            later=rng.randint(0, 2),
        )
        view = replace(
            _view(model, snapshot), pending=rng.randint(0, 6), ready=rng.randint(0, 2), stale=rng.random() < 0.3
        )
        choice = SEARCHING[strategy].search(view)
        assert choice.answer is not Answer.UPDATE or view.ready
        assert choice.answer is not Answer.TAG or view.pending
        assert not choice.exhausted


def test_past_its_budget_bts_answers_as_planned_and_says_so() -> None:
    model = Model(times=Times(generate=1000, assist=378, update=331, score=253, switch=100))
    snapshot = first_bubble(model, 64)
    choice = search(model, snapshot, budget=5)
    plan = best(model, snapshot)
    assert choice.exhausted
    assert choice.states == 5
    assert (choice.end, choice.tags) == (plan.end, plan.tags)
    assert choice.answer is Answer.TAG
    assert not Bts(budget=5).search(replace(_view(model, snapshot), ready=1)).exhausted


def _view(model: Model, snapshot: Snapshot) -> TrainerView:
    return TrainerView(
        pending=snapshot.pending, ready=snapshot.ready, in_flight=1, assisted=0, model=model, snapshot=snapshot
    )


@pytest.mark.parametrize("strategy", ["bts", "planned"])
def test_an_unknown_time_is_measured_at_the_first_bubble_and_then_waited_for(strategy: str) -> None:
    chosen = strategy_of(strategy)
    view = TrainerView(pending=3, ready=0, in_flight=1, assisted=0, unmeasured=True)
    assert chosen.decide(view) is Answer.PROBE
    assert chosen.decide(replace(view, ready=1)) is Answer.UPDATE
    assert chosen.decide(replace(view, ready=1, unsure=True)) is Answer.PROBE
    known = replace(view, unmeasured=False)
    assert chosen.decide(known) is Answer.WAIT
    assert chosen.decide(replace(known, ready=1)) is Answer.UPDATE
    assert chosen.decide(replace(known, alone=True)) is Answer.TAG


def test_ties_go_to_fewer_tag() -> None:
    """With one TAG the generator's last ends at 10 too, and with none."""
    model = Model(times=Times(generate=1, assist=1, update=10))
    snapshot = Snapshot(pending=1, generator=Running(1))
    assert best(model, snapshot).tags == 0
    assert search(model, snapshot).tags == 0


def test_the_largest_ratio_to_planned_is_where_switches_are_dear() -> None:
    model = Model(times=Times(generate=10, assist=3, update=1, switch=6))
    setup = Setup(model=model, micro_batches=32)
    assert outcome(setup, "bts")[0] > 1.5 * outcome(setup, "planned")[0]


@pytest.mark.parametrize("name", ["sometimes", "static:", "static:x", "BTS", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected never, always"):
        strategy_of(name)
