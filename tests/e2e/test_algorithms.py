"""Every algorithm through the daemons: two global steps with what is its own, on pictures and on films."""

from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.run import assert_counted_once, assert_time_is_accounted_for
from tests.e2e.test_families import overrides
from tests.families import FAMILIES

RECIPES = {
    "dance_grpo": ["sampling.kernel=dance_sde", "sampling.noise_level=0.3", "algorithm.options={best_of_n=2}"],
    "mix_grpo": ["algorithm.options={group_size=2,iters_per_group=1,kl_coefficient=0.01}"],
    "grpo_guard": ["algorithm.options={window_size=2,window_range=[0,3]}", "training.ema_decay=0.9"],
    "diffusion_nft": ["algorithm.options={decay_type=2}", "training.trainable=lora", "training.lora_rank=4"],
}
EVERY_DAY = {("dance_grpo", "flux"), ("diffusion_nft", "flux")}
CASES = [
    pytest.param(algorithm, family, marks=[] if (algorithm, family) in EVERY_DAY else pytest.mark.matrix)
    for algorithm in RECIPES
    for family in ("flux", "wan")
]


@pytest.mark.parametrize(("algorithm", "family"), CASES)
def test_two_global_steps(cluster: Cluster, tmp_path: Path, algorithm: str, family: str) -> None:
    model = overrides(FAMILIES[family], FAMILIES[family].build(tmp_path / "model"))
    run = cluster.run(
        f"{algorithm}-{family}".replace("_", "-"), *model, f"algorithm.name={algorithm}", *RECIPES[algorithm]
    )
    assert_counted_once(run, 2)
    assert_time_is_accounted_for(run, *run.summary["stage_seconds"])
    steps = [line for line in run.metrics if line["kind"] == "step"]
    assert all(line["train/max_abs_log_ratio"] <= 1e-6 for line in steps)
    assert all(line["train/gradient_norm"] > 0 for line in steps)
