"""Times are exact; what is wrong with one is said with its name."""

from fractions import Fraction

import pytest

from broker.schedule.times import Times, rational
from tests.schedule.cases import ticks


def test_a_decimal_is_itself() -> None:
    assert rational(0.1) == Fraction(1, 10)
    assert rational(1e-07) == Fraction(1, 10**7)
    assert rational(3) == 3


def test_ticks_are_the_largest_common_measure() -> None:
    times = Times.exact(generate=1.5, assist=2.0, update=0.25, score=0.5)
    assert (times.generate, times.assist, times.update, times.score) == (6, 8, 1, 2)
    assert times.unit == Fraction(1, 4)
    assert Times.exact(generate=10.0, update=20.0).unit == 10


def test_back_to_seconds_is_exact() -> None:
    times = Times.exact(generate=0.1, update=0.2, assist=0.3)
    assert times.seconds(3 * times.generate) == 0.3
    assert times.seconds(times.generate + times.update) == 0.3


def test_finer_ticks_are_the_same_times() -> None:
    times = Times.exact(generate=0.1, update=0.2)
    finer = times.finer(1000)
    assert finer.generate == 1000 * times.generate
    assert finer.seconds(finer.update) == 0.2
    assert finer.assist is None


@pytest.mark.parametrize("name", ["generate", "assist", "update", "score", "switch", "commit"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} = "):
        Times.exact(**({"generate": 1.0, "update": 1.0} | {name: value}))


@pytest.mark.parametrize("name", ["generate", "assist", "update"])
def test_work_takes_time(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} = 0: must be greater than 0"):
        ticks(**({"generate": 1, "update": 1} | {name: 0}))
