"""The demo under each algorithm, side by side: reward curves in one plot, last pictures beside each other.

    python -m benchmarks.algorithm_curves [--seeds 1] [--steps 14] [--out docs/images/algorithms.png]
                                          [--pictures docs/images/algorithms-samples.png]

Real runs (`digend up`, one generator, one trainer), one after another. Settings are each algorithm's recipe fitted to 8
timesteps and to this little model (`RECIPES`); they were not searched over, so the plot says that each learns, not
which is best.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from benchmarks.curves import NODE, Curve, completed, curve_of, draw
from clients.api import Digend
from daemons.recorder.sheetmap import cut, read_map
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


PROMPTS = (0, 7, 14, 21, 28, 11)
"""Places in the prompts file: a colour and a shape each."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/algorithms.png")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs/images/algorithms-samples.png")
    options = parser.parse_args(arguments)
    curves: dict[str, list[Curve]] = {name: [] for name in RECIPES}
    sheets: dict[str, Path] = {}
    with running(NODE) as cluster, Digend(f"ipc://{cluster.state}/driver.sock", timeout_s=30.0) as driver:
        for seed in range(options.seeds):
            for name, recipe in RECIPES.items():
                job = completed(driver, [*recipe, f"seed={seed}", f"training.global_steps={options.steps}"])
                curve, independent = (curve_of(driver, job, metric) for metric in ("reward", "shapes_independent"))
                curves[name].append(curve)
                print(f"{name}, seed {seed}: reward {_rise(curve)}, independent {_rise(independent)}", flush=True)
                samples = cluster.runs / job / "samples"
                sheets |= {"before": sorted(samples.glob("step-*.png"))[0], name: last_sheet(samples)}
    draw(curves, options.out)
    beside_each_other(sheets, options.pictures)


def last_sheet(samples: Path) -> Path:
    """The newest that the recorder has drawn; the very last may still be to come."""
    return sorted(samples.glob("step-*.png"))[-1]


def beside_each_other(sheets: Mapping[str, Path], out: Path) -> None:
    """The first sample of some prompts, a column a sheet."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.1 * len(sheets) + 1.2, 1.1 * len(PROMPTS)), layout="constrained")
    axes = figure.subplots(len(PROMPTS), len(sheets), squeeze=False)
    for column, (name, path) in enumerate(sheets.items()):
        mapped = read_map(path)
        assert mapped is not None
        with Image.open(path) as sheet:
            pictures = [cut(sheet, mapped, mapped.rows[row])[0] for row in PROMPTS]
        for place, (row, picture) in enumerate(zip(PROMPTS, pictures, strict=True)):
            assert picture is not None
            axes[place, column].imshow(picture.transpose(1, 2, 0))
            axes[place, column].set(xticks=[], yticks=[])
            if column == 0:
                axes[place, 0].set_ylabel(mapped.rows[row].text, rotation=0, ha="right", va="center", fontsize=8)
        axes[0, column].set_title(name, fontsize=8)
    figure.savefig(out, dpi=120)


def _rise(curve: Curve) -> str:
    return f"{curve[0][1]:.3f} -> {curve[-1][1]:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
