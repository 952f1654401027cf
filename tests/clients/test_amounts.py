"""What numbers options take, and that the largest and the smallest go through a simulation."""

import click
import pytest

from broker.schedule.named import strategy_of
from broker.schedule.report import simulate
from broker.schedule.simulate import Setup
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from clients import amounts
from clients.main import main

LEAST, MOST = amounts.LEAST_S, amounts.MOST_S


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e308", "1e-300", "-1", "two", ""])
@pytest.mark.parametrize("kind", [amounts.TIME, amounts.TIME_OR_NONE, amounts.GIB, amounts.GB_PER_S])
def test_out_of_bounds(kind: amounts.Amount, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_zero_is_a_time_of_what_need_not_happen() -> None:
    assert amounts.TIME_OR_NONE.convert("0", None, None) == 0
    with pytest.raises(click.BadParameter, match="from 1e-09 to 1e"):
        amounts.TIME.convert("0", None, None)


@pytest.mark.parametrize("strategy", ["bts", "planned", "always"])
@pytest.mark.parametrize(("generate", "update"), [(MOST, LEAST), (LEAST, MOST), (1.2345678901234567e-9, MOST)])
def test_the_bounds_can_be_simulated(strategy: str, generate: float, update: float) -> None:
    times = Times.exact(generate=generate, assist=MOST, update=update, score=LEAST, commit=MOST)
    setup = Setup(model=Model(times=times), micro_batches=4, steps=3)
    run = simulate(setup, strategy_of(strategy), noise=0.5, seed=2**70)
    assert 0 < run.share_of_ideal <= 1.5
    assert run.seconds(run.makespan) < float("inf")


@pytest.mark.parametrize(
    "words",
    [
        ("fork", "a", "--global-step", "99999999999999999999999"),
        ("timeline", "--global-step", "99999999999999999999999"),
        ("wait", "a", "--timeout", "nan"),
        ("top", "--interval", "inf"),
        ("jobs", "--reply-timeout", "1e300"),
        ("drain", "box", "-m", "x" * 1001),
        ("pause", "a", "-m", "x" * 1001),
    ],
)
def test_what_travels_or_is_waited_for_has_bounds(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words[-1] in said or ("-m" in said and "at most 1,000" in said)
