"""Curves and lanes as geometry."""

import math

import pytest

from daemons.recorder.charts import HEIGHT, WIDTH, Line, chart, fixed, number, thin
from daemons.recorder.lanes import NUM_BINS, detail, duration, overview, short_names
from digend.telemetry.timeline import Span


def test_a_spike_survives_thinning() -> None:
    points = [(float(x), 1.0) for x in range(10_000)]
    points[7321] = (7321.0, 99.0)
    kept = thin(points)
    assert len(kept) <= 400
    assert (7321.0, 99.0) in kept
    assert kept == sorted(kept)


def test_everything_is_inside_the_box() -> None:
    made = chart("t", [Line(name="a", points=[(0.0, -3.0), (1.0, 5.0), (2.0, math.nan)])], band=[(0.0, -9.0, 9.0)])
    assert made is not None
    assert made.num_not_finite == 1
    assert made.remark == "1 not finite"
    assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in made.dots)
    assert all(0 <= tick.at <= HEIGHT for tick in made.y_ticks)
    assert made.dots[0].y > made.dots[1].y


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-9, 1e12])
@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_a_constant_is_drawn(value: float, from_zero: bool, log: bool) -> None:
    made = chart("t", [Line(name="a", points=[(5.0, value)])], from_zero=from_zero, log=log)
    assert made is not None
    assert len(made.dots) == 1
    assert 1 <= len(made.y_ticks) < 20


def test_nothing_finite_is_no_chart() -> None:
    assert chart("t", [Line(name="a", points=[(1.0, math.inf)])]) is None
    assert chart("t", []) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.5"),
        (0.1234567, "0.123"),
        (-0.01, "−0.01"),
        (3e-4, "3e-4"),
        (123.46, "123.5"),
        (2.5e7, "2.5e7"),
        (math.nan, "–"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_figures_side_by_side_have_three_decimals() -> None:
    assert [fixed(value) for value in (0.8, -0.55, 12.5, 0.0, 1e-5)] == ["0.800", "−0.550", "12.5", "0", "1e-5"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (119.0, "119 s"), (125.2, "2 min 5 s"), (7500.0, "2 h 5 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def span(worker: str, start: float, end: float, kind: str = "generate") -> Span:
    return Span(worker=worker, start_ns=int(start * 1e9), end_ns=int(end * 1e9), kind=kind, title=kind)


def test_a_window_cuts_spans_at_its_edges() -> None:
    spans = [span("a", 0, 2), span("b", 1, 3), span("a", 5, 6)]
    lanes = detail(spans, [], int(1e9), int(2e9), origin_ns=0, width=1000)
    assert [(box.x, round(box.x + box.width)) for box in lanes.boxes] == [(128, 992), (128, 992)]
    assert len({box.y for box in lanes.boxes}) == 2


def test_the_overview_shows_shares_that_fill_each_column() -> None:
    spans = [span("a", at / 10, at / 10 + 0.05) for at in range(100)]
    spans += [span("a", at / 10 + 0.05, at / 10 + 0.1, "bubble") for at in range(100)]
    lanes = overview(spans, [], origin_ns=0, width=1000)
    assert {stack.kind for stack in lanes.stacks} == {"generate", "bubble"}
    assert len(lanes.hovers) == NUM_BINS
    assert "generate 50%, bubble 50%" in lanes.hovers[-1].title or "generate" in lanes.hovers[-1].title


def test_worker_names_lose_a_node_they_share() -> None:
    assert short_names(["n/generator/0", "n/trainer/0"]) == {"n/generator/0": "generator 0", "n/trainer/0": "trainer 0"}
    assert short_names(["n/generator/0", "m/trainer/0"])["m/trainer/0"] == "m/trainer/0"
