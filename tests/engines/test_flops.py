"""Floating-point operations are counted once a shape, change no number, and reach the receipt of every task."""

from pathlib import Path

import pytest
import torch

from digend.engines.flops import FlopMeter, shape_of
from digend.engines.peaks import PEAKS, peak_flops
from tests.engines.world import T, bench, job_config

CPU = torch.device("cpu")
PRODUCT = 2 * 2 * 8 * 4
"""[2, 8] by [8, 4]"""


def _product(leaf: torch.nn.Parameter) -> torch.Tensor:
    return torch.ones(2, 8) @ leaf


def _trained(leaf: torch.nn.Parameter) -> None:
    _product(leaf).sum().backward()  # type: ignore[no-untyped-call]


@pytest.fixture
def leaf() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(8, 4))


def test_a_row_is_run_once_and_charged_each_time(leaf: torch.nn.Parameter) -> None:
    meter, calls = FlopMeter(CPU), []
    for rows in (3, 2):
        meter.add("a", rows, lambda: calls.append(_product(leaf)))
    assert len(calls) == 1
    assert meter.take() == 5 * PRODUCT
    assert meter.take() == 0


def test_another_shape_is_counted_anew(leaf: torch.nn.Parameter) -> None:
    meter = FlopMeter(CPU)
    meter.add("a", 1, lambda: _product(leaf))
    meter.add("b", 1, lambda: torch.ones(6, 8) @ leaf)
    assert meter.take() == 4 * PRODUCT


def test_the_backward_counts_and_what_is_recomputed_does_not(leaf: torch.nn.Parameter) -> None:
    meter = FlopMeter(CPU, [leaf])
    meter.add("plain", 1, lambda: _trained(leaf))
    assert meter.take() == 2 * PRODUCT, "one product forward, one for the gradient of the only leaf"
    meter.add("recomputed", 1, lambda: _trained(leaf), lambda: _product(leaf))
    assert meter.take() == PRODUCT


def test_counting_leaves_gradients_and_random_states_as_they_were(leaf: torch.nn.Parameter) -> None:
    leaf.grad = gradient = torch.full((8, 4), 7.0)
    state = torch.get_rng_state()

    def work() -> None:
        _trained(leaf)
        torch.rand(3)

    FlopMeter(CPU, [leaf]).add("a", 1, work)
    assert leaf.grad is gradient
    assert (gradient == 7).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_count_that_fails_is_not_known_and_no_error() -> None:
    meter = FlopMeter(CPU)

    def broken() -> None:
        raise RuntimeError("an operation without a formula")

    meter.add("a", 2, broken)
    assert meter.take() == 0


def test_the_shape_is_that_of_latents_and_of_every_condition() -> None:
    short, long = {"embeds": torch.ones(3, 2)}, {"embeds": torch.ones(5, 2)}
    latents = torch.ones(4)
    assert shape_of(latents, short) == shape_of(torch.zeros(4), short)
    assert shape_of(latents, short) != shape_of(latents, long)
    assert shape_of(latents, short) != shape_of(torch.ones(3), short)


def test_tasks_say_what_they_computed(flux_folder: Path, tmp_path: Path) -> None:
    trainer = bench("trainer", job_config(flux_folder), tmp_path)
    groups = trainer.groups()
    result = trainer.generate(trainer.generate_task(groups=groups))
    generated = trainer.context.flops
    trainer.generate(trainer.generate_task(groups=groups))
    assert trainer.context.flops == generated > 0, "counted once, charged every time"
    items = trainer.items(groups, result)
    trainer.update(items)
    pairs = sum(len(item.timesteps) for item in items)
    forward = generated / (len(items) * T)
    assert 2 < trainer.context.flops / (pairs * forward) < 3.2, "a backward of all weights is about two forwards"


def test_gradient_checkpointing_counts_no_more_than_the_model_needs(flux_folder: Path, tmp_path: Path) -> None:
    counted = []
    for checkpointing in (False, True):
        config = job_config(flux_folder, training={"gradient_checkpointing": checkpointing})
        trainer = bench("trainer", config, tmp_path)
        groups = trainer.groups()
        trainer.update(trainer.items(groups, trainer.generate(trainer.generate_task(groups=groups))))
        counted.append(trainer.context.flops)
    assert counted[1] == pytest.approx(counted[0], rel=0.1)


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA H20", "bfloat16", 148.0),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312.0),
        ("NVIDIA A100 80GB PCIe", "float32", 19.5),
        ("NVIDIA L40S", "float16", 362.05),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
        ("Tesla V100-SXM2-32GB", "float16", 125.0),
        ("Tesla V100-SXM2-32GB", "bfloat16", 0.0),
        ("NVIDIA GeForce RTX 4090 D", "bfloat16", 0.0),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bfloat16", 0.0),
        ("NVIDIA L40S", "float64", 0.0),
        ("", "float32", 0.0),
    ],
)
def test_the_peak_of_a_gpu_is_known_by_its_whole_name_or_not_at_all(name: str, dtype: str, tera: float) -> None:
    assert peak_flops(name, dtype) == pytest.approx(tera * 1e12)


def test_every_peak_has_a_source() -> None:
    assert all(peak.source and peak.half > peak.float32 > 0 for peak in PEAKS)
