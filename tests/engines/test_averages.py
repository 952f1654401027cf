"""Averages of the policy: the moving one that evaluation uses, and the one that samples for DiffusionNFT."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from diffusers import FluxPipeline

from digend.engines.arrays import to_tensor
from digend.engines.optimizer import build_optimizer, learning_rate
from digend.engines.policy import EMA, OLD
from digend.engines.protocols import TaskFault
from digend.wire.refs import WeightsRef
from digend.wire.tasks import CheckpointResult, CheckpointTask
from tests.engines.world import JOB, Bench, bench, job_config, same

DECAY = 0.6


def with_average(folder: Path, **training: object) -> Any:
    return job_config(folder, training={"ema_decay": DECAY, "ema_interval": 2, "learning_rate": 1e-2, **training})


def with_nft(folder: Path) -> Any:
    options = {"decay_type": 1, "kl_coefficient": 0.0}
    return job_config(folder, algorithm={"name": "diffusion_nft", "options": options})


def copies(on: Bench, name: str) -> dict[str, torch.Tensor]:
    assert on.engine._job is not None
    return {key: each.clone() for key, each in on.engine._job.policy.copies[name].items()}


def bound(source: Bench, weights: WeightsRef, target: Bench) -> None:
    target.engine.adopt(weights, source.context.blobs[weights.blob.id])


def saved(on: Bench, *, final: bool = False) -> CheckpointResult:
    task = CheckpointTask(job=JOB, incarnation=0, version=2, global_step=2, final=final)
    result = on.engine.run(task, on.context)
    assert isinstance(result, CheckpointResult)
    return result


@pytest.mark.parametrize("trainable", ["full", "lora"])
def test_the_moving_average_follows_every_second_step(flux_folder: Path, tmp_path: Path, trainable: str) -> None:
    """At optimizer step n it keeps min((1 + n) / (10 + n), decay) of itself."""
    on = bench("trainer", with_average(flux_folder, trainable=trainable, lora_rank=4), tmp_path)
    first = on.values()
    on.one_step(0)
    assert same(copies(on, EMA), first)
    on.one_step(1)
    kept = 3 / 12
    for name, average in copies(on, EMA).items():
        torch.testing.assert_close(average, kept * first[name] + (1 - kept) * on.values()[name])
    assert not same(copies(on, EMA), on.values())


def test_it_is_published_beside_the_weights_and_evaluation_samples_with_it(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", with_average(flux_folder), tmp_path)
    on.one_step(0)
    weights = on.one_step(1).weights
    assert weights is not None
    generator = bench("generator", on.config, tmp_path, on.context)
    bound(on, weights, generator)
    assert same(generator.values(), on.values())
    assert same(copies(generator, EMA), copies(on, EMA))

    def pixels(of: Bench, purpose: Literal["train", "evaluate"]) -> torch.Tensor:
        task = replace(generator.generate_task(version=2), purpose=purpose)
        blob = of.context.blobs[of.generate(task).samples.id]
        return torch.stack([to_tensor(blob[name]).float() for name in sorted(blob)])

    assert torch.equal(pixels(generator, "evaluate"), pixels(on, "evaluate"))
    assert torch.equal(pixels(generator, "train"), pixels(on, "train"))
    assert not torch.equal(pixels(generator, "train"), pixels(generator, "evaluate"))


def test_one_tensor_of_it_missing_binds_nothing(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", with_average(flux_folder), tmp_path)
    weights = on.one_step(0).weights
    assert weights is not None
    tensors = dict(on.context.blobs[weights.blob.id])
    lost = next(name for name in tensors if name.startswith("ema/"))
    del tensors[lost]
    generator = bench("generator", on.config, tmp_path, on.context)
    before = generator.values()
    with pytest.raises(TaskFault, match=f"bound {len(tensors)} of {len(tensors) + 1}: missing {lost}"):
        generator.engine.adopt(replace(weights, num_tensors=len(tensors)), tensors)
    assert same(generator.values(), before)


@pytest.mark.parametrize("config", [with_average, with_nft])
def test_a_restored_trainer_goes_on_bit_for_bit(flux_folder: Path, tmp_path: Path, config: Any) -> None:
    on = bench("trainer", config(flux_folder), tmp_path)
    for step in range(2):
        on.one_step(step)
    path = saved(on).path
    again = bench("trainer", on.config, tmp_path, on.context, checkpoint=path, version=2)
    results = [each.one_step(2) for each in (on, again)]
    assert same(on.values(), again.values())
    published = [each.weights for each in results]
    assert published[0] is not None
    assert published[1] is not None
    assert published[0].blob.digest == published[1].blob.digest


def test_the_pipeline_that_is_saved_is_the_average(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("trainer", with_average(flux_folder), tmp_path)
    for step in range(2):
        on.one_step(step)
    pipeline = FluxPipeline.from_pretrained(saved(on, final=True).pipeline)
    stored = {f"transformer/{name}": each for name, each in pipeline.transformer.named_parameters()}
    assert same(stored, copies(on, EMA))
    assert not same(stored, on.values())


def test_nft_samples_and_publishes_the_old_policy(flux_folder: Path, tmp_path: Path) -> None:
    """At step n it keeps 0.001 n of itself: after the first step nearly the new weights, and not quite."""
    on = bench("trainer", with_nft(flux_folder), tmp_path)
    first = on.values()
    weights = on.one_step(0).weights
    assert weights is not None
    old, new = copies(on, OLD), on.values()
    for name in old:
        torch.testing.assert_close(old[name], 0.001 * first[name] + 0.999 * new[name])
    assert not same(old, new)
    generator = bench("generator", on.config, tmp_path, on.context)
    bound(on, weights, generator)
    assert same(generator.values(), old)
    task = on.generate_task(version=1, step=1)
    made = [each.context.blobs[each.generate(task).samples.id] for each in (on, generator)]
    assert all(torch.equal(to_tensor(made[0][name]), to_tensor(made[1][name])) for name in made[0])


def test_only_the_end_of_a_trajectory_travels(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("generator", with_nft(flux_folder), tmp_path)
    result = on.generate(on.generate_task())
    assert result.trajectory is not None
    names = set(on.context.blobs[result.trajectory.id])
    assert names == {f"p{group}/{index}/clean" for group in range(2) for index in range(3)}


def test_learning_rates(flux_folder: Path) -> None:
    """Warm-up from 0; then constant, or falling to 0 at the last global step."""
    parameter = torch.nn.Parameter(torch.zeros(1))

    def rates(schedule: str) -> list[float]:
        training = job_config(
            flux_folder,
            training={
                "global_steps": 6,
                "learning_rate": 0.8,
                "learning_rate_schedule": schedule,
                "warmup_steps": 2,
            },
        ).training
        optimizer = build_optimizer([parameter], training)
        return [learning_rate(optimizer, training, step) for step in range(7)]

    assert rates("constant") == pytest.approx([0, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8])
    assert rates("linear") == pytest.approx([0, 0.4, 0.8, 0.6, 0.4, 0.2, 0])
    assert rates("cosine")[2:] == pytest.approx([0.8, 0.4 + 0.4 * 0.5**0.5, 0.4, 0.4 - 0.4 * 0.5**0.5, 0], abs=1e-12)


@pytest.mark.parametrize(("make", "average"), [(with_average, EMA), (with_nft, OLD)])
def test_a_global_step_without_samples_moves_no_average(
    flux_folder: Path, tmp_path: Path, make: Callable[[Path], Any], average: str
) -> None:
    """Z = 0: no optimizer step, the same version, weights and average as they were."""
    on = bench("trainer", make(flux_folder), tmp_path)
    on.one_step(0)
    before, weights = copies(on, average), on.values()
    empty = on.commit(version=1, step=1, micro_batches=(), z=0)
    assert (empty.weights, empty.gradient_norm) == (None, 0.0)
    assert empty.skipped == "Z = 0: no sample was selected"
    assert same(copies(on, average), before)
    assert same(on.values(), weights)
    assert on.engine.applied(JOB) == (1, 2, ())
