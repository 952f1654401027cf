"""Ranks measure one TSP width together, and their gradient is that of one rank at any width."""

from pathlib import Path
from typing import Any

import pytest
import torch

from digend.config.job import JobConfig
from digend.engines.ranks.tensors import own_part
from digend.wire.tasks import UpdateResult
from tests.engines.world import Bench, job_config, same
from tests.ranks.crew import Crew, micro_batches

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]

CASES: dict[str, dict[str, Any]] = {
    "lora": {"trainable": "lora", "lora_rank": 4},
    "shard": {"trainable": "full"},
    "reshard off": {"trainable": "full", "reshard": False},
    "two replicas": {"trainable": "full", "ranks": 4, "replicas": 2},
}


def config_of(folder: Path, **training: object) -> JobConfig:
    wanted = {"update_batch": 1, "timestep_width": "auto", "ranks": 2, **training}
    return job_config(folder, model={"dtype": "float64"}, training=wanted)


def values(on: Bench) -> dict[str, torch.Tensor]:
    """Rank 0's parts."""
    return {name: own_part(each) for name, each in on.values().items()}


def updated(on: Bench) -> list[UpdateResult]:
    return [on.update(items, micro_batch=number) for number, items in enumerate(micro_batches(on, 0))]


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_take_the_same_width(crew: Crew, flux_folder: Path, tmp_path: Path, name: str) -> None:
    one = crew.bench(config_of(flux_folder, **{**CASES[name], "ranks": 1, "replicas": 1, "timestep_width": 1}))
    updated(one)
    whole = {key: grad for key, grad in one.gradient().items() if grad is not None}
    config = config_of(flux_folder, **CASES[name])
    files = [tmp_path / f"{rank}.safetensors" for rank in range(1, config.training.ranks)]
    orders = {rank: {"gradients": str(file)} for rank, file in enumerate(files, start=1)}
    several = crew.bench(config, orders=orders)
    before = values(several)
    first, second = updated(several)
    assert [width for width, _ in first.tried] == [1, 2, 3]
    assert (second.width, second.tried) == (first.width, ())
    assert same(before, values(several))
    assert crew.leave(several) == ["left"] * (config.training.ranks - 1)
    shards = config.training.ranks // config.training.num_replicas
    found = crew.gradient(several, files, shards)
    norm = torch.stack([each.norm() for each in whole.values()]).norm()
    for key, gradient in whole.items():
        assert float((found[key].reshape(gradient.shape) - gradient).norm()) <= 1e-10 * float(norm)
