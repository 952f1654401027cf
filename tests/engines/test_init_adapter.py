"""`training.init_adapter`: version 0 is a folder's adapter, the same in every process; another shape is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from digend.engines.protocols import TaskFault
from tests.engines.test_checkpoints import save
from tests.engines.world import Bench, bench, job_config, same

LORA: dict[str, Any] = {"trainable": "lora", "lora_rank": 4, "lora_alpha": 8.0}


@pytest.fixture(scope="module")
def trained(flux_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Path]:
    """A job that has learned something, and its adapter in diffusers' form."""
    root = tmp_path_factory.mktemp("trained")
    on = bench("trainer", job_config(flux_folder, training=LORA), root)
    on.one_step(0)
    return on, Path(save(on, 1, final=True).path) / "lora"


def test_it_is_version_0_everywhere(flux_folder: Path, tmp_path: Path, trained: tuple[Bench, Path]) -> None:
    on, folder = trained
    config = job_config(flux_folder, training={**LORA, "init_adapter": str(folder), "ema_decay": 0.9})
    benches = [bench(role, config, tmp_path) for role in ("trainer", "generator")]
    for each in benches:
        assert same(on.values(), each.values())
        assert each.engine._loaded("job-1").version == 0
        assert all(
            torch.equal(value, on.parameters[name])
            for name, value in each.engine._loaded("job-1").policy.copies["ema"].items()
        )
    digests = {each.prepared.adapter_digest for each in benches}
    assert len(digests) == 1
    assert digests != {""}
    assert on.prepared.adapter_digest == ""
    fresh = bench("trainer", job_config(flux_folder, training=LORA), tmp_path)
    assert not same(on.values(), fresh.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lora_rank": 2}, "has rank 4, training.lora_rank is 2"),
        ({"lora_alpha": 4.0}, "has alpha 8, training.lora_alpha is 4"),
        ({"lora_targets": ["to_q"]}, "bound"),
    ],
)
def test_another_shape_is_refused_with_both_named(
    flux_folder: Path, tmp_path: Path, trained: tuple[Bench, Path], change: dict[str, object], words: str
) -> None:
    config = job_config(flux_folder, training={**LORA, "init_adapter": str(trained[1]), **change})
    with pytest.raises(TaskFault) as error:
        bench("trainer", config, tmp_path)
    assert error.value.error.reason == "config"
    assert words in str(error.value)
    assert str(trained[1]) in str(error.value)


def test_a_folder_without_an_adapter_is_named(flux_folder: Path, tmp_path: Path) -> None:
    config = job_config(flux_folder, training={**LORA, "init_adapter": str(tmp_path)})
    with pytest.raises(TaskFault, match="cannot be read"):
        bench("trainer", config, tmp_path)
