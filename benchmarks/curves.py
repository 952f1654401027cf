"""Reward curves of the demo under other settings: what the benchmarks of staleness and of algorithms share."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clients.api import Digend
from scripts.demo_cluster import ROOT

JOB = ROOT / "configs/jobs/shapes-flow-grpo.toml"
NODE = ROOT / "configs/nodes/laptop.toml"
OFTEN = ("eval.every=2", "eval.during_samples=4", "checkpoint.every=0")

Curve = list[tuple[int, float]]
"""(global step, evaluation reward)."""


def completed(driver: Digend, overrides: Sequence[str]) -> str:
    """The id of a demo job that ran to its end with `overrides`; ends the program where it did not."""
    job = driver.submit(JOB, overrides=[*OFTEN, *overrides]).job
    view = driver.wait(job)
    if view.state != "completed":
        raise SystemExit(f"{job} is {view.state}: {view.reason}")
    return job


def curve_of(driver: Digend, job: str, metric: str = "reward") -> Curve:
    return [(each.global_step, each.metrics[metric]) for each in driver.job(job).evaluations]


def draw(curves: Mapping[str, Sequence[Curve]], out: Path) -> None:
    """One colour a kind, one line a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for place, (kind, runs) in enumerate(curves.items()):
        for number, curve in enumerate(runs):
            label = kind if number == 0 else None
            axes.plot(*zip(*curve, strict=True), color=f"C{place}", alpha=0.7, label=label)
    axes.set_xlabel("global step")
    axes.set_ylabel("evaluation reward")
    axes.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
