"""The bar of global steps keeps its place on a narrow terminal: figures give way, not how far the job is."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from clients.bar import Bar
from digend.wire.records import EvaluationRecord, Record, StepRecord


@pytest.mark.parametrize("width", [60, 80, 200])
def test_figures_give_way(story: list[Record], width: int) -> None:
    many = {"reward": 0.686, **{f"a_rather_long_reward_{n}.accuracy": 0.875 for n in range(9)}}
    shown = io.StringIO()
    console = Console(file=shown, width=width, force_terminal=True, color_system=None)
    with Bar("shapes-flow-grpo-001", 4, console) as bar:
        for body in (record.body for record in story if record.body.kind != "restart"):
            bar.add(replace(body, metrics=many) if isinstance(body, EvaluationRecord) else body)
    last = [line for line in shown.getvalue().splitlines() if "/4 " in line][-1]
    steps = [record.body.global_step for record in story if isinstance(record.body, StepRecord)]
    assert steps
    for expected in ("shapes-flow-grpo-001", "━", f"{steps[-1]}/4 ", "left"):
        assert expected in last
    assert "accuracy" not in last, "the line above the bar has that"
    assert ("…" in last) is (width < 200)
