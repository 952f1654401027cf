"""The simulated model against the reference, and the corners of its rules one by one."""

from random import Random

import pytest

from broker.schedule.named import strategy_of
from broker.schedule.simulate import Run, Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from tests.schedule import reference
from tests.schedule.cases import case_of, random_setup, ticks

SIMPLE = {"never": reference.never, "always": reference.always, "static:2": reference.static(2)}


def commits(setup: Setup, strategy: str) -> list[int]:
    run = Run.of(setup)
    run.to_end(strategy_of(strategy))
    return run.commits


@pytest.mark.parametrize("strategy", SIMPLE)
@pytest.mark.parametrize("steps", [1, 4])
def test_commits_equal_the_reference(strategy: str, steps: int) -> None:
    rng = Random(f"{strategy} {steps}")
    for _ in range(200 // steps):
        setup = random_setup(rng, 8, steps=steps)
        assert commits(setup, strategy) == reference.World(case_of(setup), SIMPLE[strategy]).run().commits, setup


@pytest.mark.parametrize("strategy", ["planned", "bts"])
def test_searching_strategies_over_several_steps_equal_the_reference(strategy: str) -> None:
    """With stale work in the predictions, mode and tasks carried over, ties and all."""
    rng = Random(f"several {strategy}")
    decide = {"planned": reference.planned, "bts": reference.bts}[strategy]
    for _ in range(60):
        setup = random_setup(rng, 6 if strategy == "planned" else 5, steps=3)
        assert commits(setup, strategy) == reference.World(case_of(setup), decide).run().commits, setup


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", ["planned", "bts"])
def test_searching_strategies_equal_the_reference_on_many(strategy: str) -> None:
    rng = Random(f"many {strategy}")
    decide = {"planned": reference.planned, "bts": reference.bts}[strategy]
    for _ in range(1500):
        setup = random_setup(rng, 10 if strategy == "planned" else 6, steps=rng.randint(1, 4))
        assert commits(setup, strategy) == reference.World(case_of(setup), decide).run().commits, setup


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", SIMPLE)
def test_commits_equal_the_reference_on_thousands(strategy: str) -> None:
    rng = Random(strategy)
    for _ in range(3000):
        setup = random_setup(rng, 12, steps=rng.randint(1, 5))
        assert commits(setup, strategy) == reference.World(case_of(setup), SIMPLE[strategy]).run().commits, setup


def one(strategy: str, num: int = 2, servers: int = 0, **times: int) -> Run:
    run = Run.of(Setup(model=Model(times=ticks(**times), servers=servers), micro_batches=num))
    run.to_end(strategy_of(strategy))
    return run


def test_never_waits_for_each_generation() -> None:
    assert one("never", 3, generate=10, update=4).now == 34


def test_at_one_instant_all_is_applied_before_anything_is_dispatched() -> None:
    """At 12 the generator has scored its own; it finds the TAG result of 12 in SQ and scores it until 14, then
    generates until 24 and scores until 26."""
    assert one("static:1", 3, generate=10, assist=12, update=5, score=2).commits == [26 + 5]


def test_the_generator_is_dispatched_before_the_trainer() -> None:
    """One micro-batch: the generator claims it, nothing is left to TAG."""
    assert one("always", 1, generate=10, assist=1, update=1).total_assisted == 0


def test_a_switch_is_at_the_front_and_back_is_lazy() -> None:
    """TAG with c at its front until 6; the update waits for nothing but pays c again: 6 + 1 + 4, then 10 is there."""
    assert one("static:1", 2, generate=10, assist=5, update=4, switch=1).commits == [15]


def test_no_switch_between_equal_modes() -> None:
    assert one("static:2", 3, generate=100, assist=5, update=4, switch=1).commits == [104]


def test_a_skipped_bubble_is_not_asked_again() -> None:
    run = one("never", 3, generate=10, assist=3, update=4)
    assert [answer.value for answer in run.answers] == ["wait", "update", "wait", "update", "update"]


def test_dedicated_servers_take_one_item_each() -> None:
    assert one("never", 2, servers=1, generate=1, update=1, score=5).commits == [1 + 5 + 5 + 1]
    assert one("never", 2, servers=2, generate=1, update=1, score=5).commits == [2 + 5 + 1]


def test_without_scoring_servers_are_idle() -> None:
    assert one("never", 2, servers=3, generate=3, update=1).commits == [7]


def test_static_tags_whatever_uq_holds_and_fewer_where_nothing_is_pending() -> None:
    run = one("static:9", 4, generate=2, assist=1, update=1)
    assert run.total_assisted == 2


def test_no_assist_time_means_no_tag() -> None:
    for strategy in ("always", "static:3", "bts", "planned"):
        run = one(strategy, 3, generate=10, update=4)
        assert run.commits == [34]
        assert run.total_assisted == 0


def stale(strategy: str, staleness: float, steps: int = 2, num: int = 2, **times: int) -> Run:
    model = Model(times=ticks(**times))
    run = Run.of(Setup(model=model, micro_batches=num, steps=steps, staleness=staleness))
    run.to_end(strategy_of(strategy))
    return run


def test_the_generator_works_ahead_at_the_tail() -> None:
    """Step 1 has one micro-batch in UQ at 20 and one claimed afresh there."""
    assert stale("never", 0.5, generate=10, update=8, commit=2).commits == [30, 50]
    assert stale("never", 0.0, generate=10, update=8, commit=2).commits == [30, 60]


def test_the_quota_is_the_exact_floor() -> None:
    assert int(0.29 * 100) == 28
    assert Setup(model=Model(times=Times(generate=1, update=1)), micro_batches=100, staleness=0.29).stale_quota == 29


def test_stale_work_in_flight_at_the_commit_is_finished() -> None:
    """Claimed at 20, in flight at the commit at 25, done at 30; the fresh one follows it."""
    assert stale("never", 1.0, num=2, generate=10, update=4, commit=1).commits == [25, 45]


def test_the_last_step_makes_no_stale_work() -> None:
    run = stale("always", 1.0, steps=1, num=2, generate=10, assist=3, update=4)
    assert run.counts[("generate", 0)] + run.counts.get(("assist", 0), 0) == 2
    assert ("generate", 1) not in run.counts


def test_only_always_takes_stale_work_that_delays_the_commit() -> None:
    """The trainer is free at 2 + 1, its last update comes at 10: TAG of 20 would end at 23."""
    times = {"generate": 10, "assist": 20, "update": 1, "commit": 0}
    ends = {name: stale(name, 1.0, num=1, **times).commits[0] for name in ("never", "static:1", "bts", "planned")}
    assert set(ends.values()) == {11}
    assert stale("always", 1.0, num=1, **times).commits[0] == 21


@pytest.mark.parametrize("strategy", ["bts", "planned"])
def test_stale_work_that_delays_nothing_is_taken(strategy: str) -> None:
    run = stale(strategy, 1.0, num=1, generate=10, assist=6, update=1)
    assert run.commits[0] == 11
    assert run.total_assisted == 1
    assert stale(strategy, 1.0, num=1, generate=10, assist=6, update=1, switch=3).total_assisted == 0


def test_the_mode_carries_over() -> None:
    run = stale("always", 1.0, steps=3, num=1, generate=10, assist=10, update=1, switch=2)
    assert run.commits == reference.World(case_of(run.setup), reference.always).run().commits
