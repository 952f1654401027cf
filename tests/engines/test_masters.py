"""Full fine-tuning in half precision learns in float32: steps too small for bfloat16 add up, averages too."""

from pathlib import Path

import pytest
import torch

from digend.engines.protocols import Cancelled
from tests.engines.test_checkpoints import save
from tests.engines.world import Bench, bench, job_config, same

SMALL = {"learning_rate": 1e-6, "weight_decay": 0.0}
"""Of a weight of 0.1, bfloat16 sees a change of 4e-4 at least."""


def trainer(folder: Path, root: Path, checkpoint: str | None = None, version: int = 0, **training: object) -> Bench:
    config = job_config(folder, model={"dtype": "bfloat16"}, training={**SMALL, **training})
    return bench("trainer", config, root, checkpoint=checkpoint, version=version)


def averages(on: Bench) -> dict[str, torch.Tensor]:
    return on.engine._training("job-1").masters.averages["ema"]


def masters(on: Bench) -> dict[str, torch.Tensor]:
    return dict(on.engine._training("job-1").masters.parameters)


def test_what_bfloat16_cannot_hold_is_not_lost(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, ema_decay=0.9, ema_interval=1)
    before = on.values()
    started = {name: each.detach().clone() for name, each in masters(on).items()}
    for step in range(3):
        on.one_step(step)
    assert {each.dtype for each in on.parameters.values()} == {torch.bfloat16}
    assert {each.dtype for each in masters(on).values()} == {torch.float32}
    moved = [name for name, each in masters(on).items() if not torch.equal(each, started[name])]
    assert len(moved) > len(started) / 2
    assert any(torch.equal(on.parameters[name], before[name]) for name in moved), "the step is below bfloat16's"
    for name, each in masters(on).items():
        assert torch.equal(on.parameters[name], each.to(torch.bfloat16))
        assert on.parameters[name].grad is None
    averages = on.engine._training("job-1").masters.averages["ema"]
    assert all(
        torch.equal(on.engine._loaded("job-1").policy.copies["ema"][n], v.bfloat16()) for n, v in averages.items()
    )
    assert any(not torch.equal(value, masters(on)[name]) for name, value in averages.items())


def test_a_checkpoint_keeps_them(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, ema_decay=0.9, ema_interval=1)
    for step in range(2):
        on.one_step(step)
    path = save(on, 2).path
    restored = trainer(flux_folder, tmp_path, path, 2, ema_decay=0.9, ema_interval=1)
    assert on.one_step(2).gradient_norm == restored.one_step(2).gradient_norm
    assert same(masters(on), masters(restored))
    assert same(
        on.engine._training("job-1").masters.averages["ema"], restored.engine._training("job-1").masters.averages["ema"]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_where_they_are_not_needed_there_are_none(flux_folder: Path, tmp_path: Path, dtype: str) -> None:
    on = bench("trainer", job_config(flux_folder, model={"dtype": dtype}), tmp_path)
    assert all(each is on.parameters[name] for name, each in masters(on).items())
    assert not (Path(save(on, 0).path) / "masters.safetensors").exists()


def test_an_update_that_breaks_leaves_no_gradient_behind(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path, update_batch=1)
    groups = on.groups()
    items = on.items(groups, on.generate(on.generate_task(groups=groups)))
    on.context.cancel_at = len(on.context.steps) + 4
    with pytest.raises(Cancelled):
        on.update(items)
    on.context.cancel_at = None
    assert all(each.grad is None for each in (*masters(on).values(), *on.parameters.values()))
