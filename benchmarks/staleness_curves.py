"""Does staleness cost reward? The demo on-policy and with staleness 0.5, five seeds each, in one plot.

    python -m benchmarks.staleness_curves [--seeds 5] [--steps 14] [--out docs/images/staleness.png]

Stated beforehand: the two are called equivalent when the 90 % confidence interval of the difference of their mean final
evaluation rewards lies inside +-0.03 (two one-sided Welch t-tests at 5 %). The margin is a quarter of what the demo
gains. Runs are real (`digend up`, one generator, one trainer); the order of seeds and kinds is interleaved.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.curves import NODE, Curve, completed, curve_of, draw
from clients.api import Digend
from scripts.demo_cluster import ROOT, running

MARGIN = 0.03
KINDS = {"on-policy": 0.0, "staleness 0.5": 0.5}


def run(driver: Digend, seed: int, staleness: float, steps: int) -> tuple[Curve, int]:
    """(evaluation reward by global step, stale micro-batches)."""
    job = completed(driver, [f"seed={seed}", f"schedule.staleness={staleness}", f"training.global_steps={steps}"])
    return curve_of(driver, job), stale_of(driver, job)


def stale_of(driver: Digend, job: str) -> int:
    bodies = [record.body for record in driver.follow(job)]
    return sum(body.stale_micro_batches for body in bodies if body.kind == "step")


def verdict(first: Sequence[float], second: Sequence[float]) -> str:
    """Two one-sided Welch t-tests on final rewards."""
    from scipy.stats import t

    spread = (stdev(first) ** 2 / len(first) + stdev(second) ** 2 / len(second)) ** 0.5
    parts = [(stdev(each) ** 2 / len(each), len(each) - 1) for each in (first, second)]
    freedom = spread**4 / sum(part**2 / count for part, count in parts)
    difference = mean(second) - mean(first)
    half = float(t.ppf(0.95, freedom)) * spread
    inside = abs(difference) + half < MARGIN
    return (
        f"difference {difference:+.4f}, 90 % interval [{difference - half:+.4f}, {difference + half:+.4f}], "
        f"margin {MARGIN}: {'equivalent' if inside else 'not shown to be equivalent'}"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/staleness.png")
    parser.add_argument("--json", type=Path, help="also write the curves")
    options = parser.parse_args(arguments)
    curves: dict[str, list[Curve]] = {kind: [] for kind in KINDS}
    with running(NODE) as cluster, Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        for seed in range(options.seeds):
            for kind, staleness in KINDS.items():
                curve, stale = run(driver, seed, staleness, options.steps)
                curves[kind].append(curve)
                print(f"{kind}, seed {seed}: {curve[-1][1]:.4f}, {stale} stale micro-batches", flush=True)
    if options.json:
        options.json.write_text(json.dumps(curves), encoding="utf-8")
    draw(curves, options.out)
    print(verdict(*([curve[-1][1] for curve in runs] for runs in curves.values())))


if __name__ == "__main__":
    main(sys.argv[1:])
