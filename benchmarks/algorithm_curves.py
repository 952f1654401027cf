"""The demo under each algorithm, side by side: reward curves in one plot, last pictures beside each other.

    python -m benchmarks.algorithm_curves [--seeds 1] [--steps 14] [--out docs/images/algorithms.png]

Real runs (`digend up`, one generator, one trainer), one after another. Settings are each algorithm's recipe fitted to 8
timesteps and to this little model (`RECIPES`); they were not searched over, so the plot says that each learns, not
which is best.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.curves import NODE, Curve, completed, curve_of, draw
from clients.api import Digend
from scripts.demo_cluster import ROOT, running

RECIPES = {
    "flow_grpo": [],
    "dance_grpo": [
        "algorithm.name=dance_grpo",
        "algorithm.options={clip_range=1e-3}",
        "sampling.kernel=dance_sde",
        "sampling.noise_level=0.7",
    ],
    "mix_grpo": [
        "algorithm.name=mix_grpo",
        "algorithm.options={clip_range=1e-3,group_size=3,iters_per_group=4,window_range=[0,5]}",
    ],
    "grpo_guard": [
        "algorithm.name=grpo_guard",
        "algorithm.options={clip_range=1e-3,window_size=3,window_range=[0,3]}",
    ],
    "diffusion_nft": ["algorithm.name=diffusion_nft", "algorithm.options={timestep_fraction=0.5}"],
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/algorithms.png")
    parser.add_argument("--pictures", type=Path, help="also copy each run's last grid to this folder")
    options = parser.parse_args(arguments)
    curves: dict[str, list[Curve]] = {name: [] for name in RECIPES}
    with running(NODE) as cluster, Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        for seed in range(options.seeds):
            for name, recipe in RECIPES.items():
                job = completed(driver, [*recipe, f"seed={seed}", f"training.global_steps={options.steps}"])
                curve, independent = (curve_of(driver, job, metric) for metric in ("reward", "shapes_independent"))
                curves[name].append(curve)
                print(f"{name}, seed {seed}: reward {_rise(curve)}, independent {_rise(independent)}", flush=True)
                if options.pictures:
                    _copy_pictures(cluster.runs / job / "samples", options.pictures, name)
    draw(curves, options.out)


def _copy_pictures(source: Path, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for grid in source.glob("*.png"):
        shutil.copy(grid, folder / f"{name}-{grid.name}")


def _rise(curve: Curve) -> str:
    return f"{curve[0][1]:.3f} -> {curve[-1][1]:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
