"""float16: small gradients survive, an overflow costs a micro-batch made again and no step, a checkpoint keeps it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.engines import loss_scale
from digend.engines.loss_scale import FIRST, LossScale
from digend.engines.ranks.peers import Alone
from tests.engines.test_checkpoints import save
from tests.engines.world import Bench, bench, job_config, same


def trainer(folder: Path, root: Path, dtype: str = "float16", **given: Any) -> Bench:
    """A trainer of a tiny model; `given`: keys of its training table, or how to restore it."""
    restored = {name: given.pop(name) for name in ("checkpoint", "version") if name in given}
    return bench("trainer", job_config(folder, model={"dtype": dtype}, training=given), root, **restored)


def scale_of(on: Bench) -> LossScale:
    return on.engine._training("job-1").loss_scale


def gradient(on: Bench) -> dict[str, torch.Tensor]:
    """Of the masters, after the one update of `advantages`."""
    parameters = on.engine._training("job-1").masters.parameters
    return {name: each.grad.clone() for name, each in parameters.items() if each.grad is not None}


def update(on: Bench, advantage: float = 1.0) -> int:
    """One micro-batch whose advantages are all times this; how often it was made again."""
    groups = on.groups()
    items = on.items(groups, on.generate(on.generate_task(groups=groups)))
    scaled = [replace(item, advantage=item.advantage * advantage) for item in items]
    return on.update(scaled).remade


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_small_gradients_survive(flux_folder: Path, tmp_path: Path, trainable: str) -> None:
    """Advantages of 1e-5: without a scale most of the gradient is 0; with it, what float32 has, but for rounding."""
    exact = trainer(flux_folder, tmp_path / "a", "float32", trainable=trainable)
    scaled = trainer(flux_folder, tmp_path / "b", trainable=trainable)
    plain = trainer(flux_folder, tmp_path / "c", trainable=trainable)
    scale_of(plain).value = 1.0
    for on in (exact, scaled, plain):
        assert update(on, 1e-5) == 0
    off = {name: _off(gradient(on), gradient(exact)) for name, on in (("scaled", scaled), ("plain", plain))}
    assert off["scaled"] < 0.02
    assert off["plain"] > 5 * off["scaled"]


def _off(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Distance, relative to the length of what is wanted."""
    pairs = [(found[name].double() - each.double(), each.double()) for name, each in wanted.items()]
    return math.sqrt(sum(float(a.square().sum()) for a, _ in pairs) / sum(float(b.square().sum()) for _, b in pairs))


def test_an_overflow_is_made_again_at_half_the_scale_and_no_step_is_lost(flux_folder: Path, tmp_path: Path) -> None:
    on, calm = trainer(flux_folder, tmp_path / "a"), trainer(flux_folder, tmp_path / "b")
    scale_of(on).value = 2.0**40
    remade = update(on)
    assert remade > 0
    assert scale_of(on).value == 2.0 ** (40 - remade)
    assert all(each.isfinite().all() for each in gradient(on).values())
    assert update(calm) == 0
    assert _off(gradient(on), gradient(calm)) < 0.02
    done = on.commit()
    assert done.skipped is None
    assert done.loss_scale == scale_of(on).value
    assert not same(on.values(), calm.values())


def test_what_no_scale_helps_is_named_at_the_commit(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path)
    name, first = next(iter(on.engine._training("job-1").masters.parameters.items()))
    original = on.engine._training("job-1").masters.collect

    def poisoned() -> None:
        original()
        first.grad = torch.full_like(first, float("inf"))

    on.engine._training("job-1").masters.collect = poisoned  # type: ignore[method-assign]
    assert update(on) == math.log2(FIRST)
    done = on.commit()
    assert done.skipped == f"gradient of {name} is not finite"
    assert done.weights is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_types_have_none(flux_folder: Path, tmp_path: Path, dtype: str) -> None:
    on = trainer(flux_folder, tmp_path, dtype)
    done = on.one_step(0)
    assert (done.loss_scale, scale_of(on).value, scale_of(on).clean) == (1.0, 1.0, 0)


def test_it_grows_when_nothing_overflowed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 3)
    scale = LossScale(torch.float16)
    parameter = torch.nn.Parameter(torch.zeros(2))
    for _ in range(3):
        parameter.grad = torch.full((2,), FIRST)
        assert scale.accepts([parameter], Alone().add_up)
        assert parameter.grad.tolist() == [1.0, 1.0]
    assert (scale.value, scale.clean) == (2 * FIRST, 0)
    parameter.grad = torch.tensor([1.0, float("nan")])
    assert not scale.accepts([parameter], Alone().add_up)
    assert parameter.grad is None
    assert (scale.value, scale.clean) == (FIRST, 0)


def test_a_checkpoint_keeps_it(flux_folder: Path, tmp_path: Path) -> None:
    on = trainer(flux_folder, tmp_path)
    on.one_step(0)
    scale_of(on).value = 2.0**12
    on.one_step(1)
    path = save(on, 2).path
    restored = trainer(flux_folder, tmp_path, checkpoint=path, version=2)
    assert (scale_of(restored).value, scale_of(restored).clean) == (2.0**12, 2)
    assert on.one_step(2).gradient_norm == restored.one_step(2).gradient_norm
    assert same(on.values(), restored.values())
