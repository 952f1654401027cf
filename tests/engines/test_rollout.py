"""Rollout: noise keyed by the sample, mixed noise levels in one pass, and faults that name what failed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from digend.engines.arrays import to_tensor
from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.tasks import GenerateResult, GroupRequest, SampleRequest
from tests.engines.world import LEVEL, WINDOW, Bench, T, bench, job_config


def tensors(on: Bench, result: GenerateResult) -> dict[str, torch.Tensor]:
    assert result.trajectory is not None
    return {name: to_tensor(array) for name, array in on.context.pull(result.trajectory).items()}


def only(group: GroupRequest, *indices: int) -> GroupRequest:
    return replace(group, samples=tuple(group.samples[index] for index in indices))


@pytest.fixture
def generator(flux_folder: Path, tmp_path: Path) -> Bench:
    return bench("generator", job_config(flux_folder, sampling={"rollout_batch": 3}), tmp_path)


def test_what_is_kept(generator: Bench) -> None:
    result = generator.generate(generator.generate_task())
    kept = tensors(generator, result)
    assert sorted(kept) == sorted(
        f"p{prompt}/{index}/{what}" for prompt in range(2) for index in range(3) for what in ("latents", "log_probs")
    )
    assert kept["p0/0/latents"].shape == (len(WINDOW) + 1, 4, 16)
    assert kept["p0/0/latents"].dtype == torch.float32
    assert kept["p0/0/log_probs"].shape == (len(WINDOW),)
    pixels = generator.context.pull(result.samples)
    assert len(pixels) == 6
    assert (pixels["p1/2/pixels"].dtype, pixels["p1/2/pixels"].shape) == ("uint8", (3, 32, 32))


def test_only_trained_timesteps_are_kept(generator: Bench) -> None:
    groups = generator.groups()
    request = replace(groups[0].samples[0], timesteps=(0, 2))
    group = replace(groups[0], samples=(request,))
    sparse = tensors(generator, generator.generate(generator.generate_task(groups=[group])))
    whole = tensors(generator, generator.generate(generator.generate_task(groups=[only(groups[0], 0)])))
    assert torch.equal(sparse["p0/0/latents"], whole["p0/0/latents"][[0, 1, 2, 3]])
    assert torch.equal(sparse["p0/0/log_probs"], whole["p0/0/log_probs"][[0, 2]])


def test_a_fragment_split_at_the_batch_size_changes_no_bit(generator: Bench) -> None:
    first, second = generator.groups()
    together = tensors(generator, generator.generate(generator.generate_task(groups=[first, second])))
    apart = {
        name: tensor
        for group in (second, first)
        for name, tensor in tensors(generator, generator.generate(generator.generate_task(groups=[group]))).items()
    }
    assert together.keys() == apart.keys()
    assert all(torch.equal(together[name], apart[name]) for name in together)


def test_noise_does_not_depend_on_who_shares_the_pass(generator: Bench) -> None:
    first, second = generator.groups()
    together = tensors(generator, generator.generate(generator.generate_task(groups=[first, second])))
    alone = tensors(generator, generator.generate(generator.generate_task(groups=[only(second, 2)])))
    assert torch.equal(alone["p1/2/latents"][0], together["p1/2/latents"][0])
    torch.testing.assert_close(alone["p1/2/latents"], together["p1/2/latents"], rtol=1e-5, atol=1e-5)
    other = tensors(generator, generator.generate(generator.generate_task(groups=[only(second, 1)])))
    assert not torch.allclose(alone["p1/2/latents"], other["p1/1/latents"], atol=1e-2)


def test_groups_with_different_windows_share_a_pass(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("generator", job_config(flux_folder, sampling={"rollout_batch": 6}), tmp_path)
    early, late = on.groups(window=(0, 1))[0], on.groups(window=(2, 3))[1]
    together = tensors(on, on.generate(on.generate_task(groups=[early, late])))
    for group in (early, late):
        apart = tensors(on, on.generate(on.generate_task(groups=[group])))
        for name, tensor in apart.items():
            torch.testing.assert_close(together[name], tensor, rtol=1e-5, atol=1e-5)


def test_one_initial_noise_for_a_group(generator: Bench) -> None:
    group = generator.groups()[0]
    shared = replace(
        group, samples=tuple(replace(each, initial_seed=group.samples[0].initial_seed) for each in group.samples)
    )
    kept = tensors(generator, generator.generate(generator.generate_task(groups=[shared])))
    assert torch.equal(kept["p0/0/latents"][0], kept["p0/1/latents"][0])
    assert not torch.equal(kept["p0/0/latents"][1], kept["p0/1/latents"][1])


def evaluation(on: Bench) -> list[GroupRequest]:
    return [
        replace(group, levels=(0.0,) * T, samples=tuple(replace(each, timesteps=()) for each in group.samples))
        for group in on.groups()
    ]


def test_evaluation_keeps_no_trajectory(generator: Bench) -> None:
    task = replace(generator.generate_task(groups=evaluation(generator)), purpose="evaluate")
    result = generator.generate(task)
    assert result.trajectory is None
    assert result.num_samples == 6


def test_training_a_timestep_without_noise_is_an_error(generator: Bench) -> None:
    group = replace(generator.groups()[0], levels=(LEVEL, 0.0, 0.0, 0.0, 0.0))
    with pytest.raises(TaskFault, match="noise level 0"):
        generator.generate(generator.generate_task(groups=[group]))


def test_progress_is_a_denoising_step(generator: Bench) -> None:
    generator.context.steps.clear()
    generator.generate(generator.generate_task())
    assert generator.context.steps == [(step, 2 * T) for step in range(1, 2 * T + 1)]
    assert [name for name in generator.context.stages if name in ("generate", "decode")] == ["generate", "decode"] * 2


def test_a_revoked_lease_stops_between_two_passes(generator: Bench) -> None:
    generator.context.steps.clear()
    generator.context.cancel_at = 3
    with pytest.raises(Cancelled):
        generator.generate(generator.generate_task())
    assert len(generator.context.steps) == 3


def test_latents_that_are_not_finite_name_sample_and_timestep(generator: Bench) -> None:
    with torch.no_grad():
        generator.parameters["transformer/proj_out.bias"].fill_(float("nan"))
    with pytest.raises(TaskFault, match=r"p0/0 .*timestep 0") as fault:
        generator.generate(generator.generate_task())
    assert fault.value.error.reason == "non_finite"


def test_another_version_than_loaded_is_refused(generator: Bench) -> None:
    with pytest.raises(TaskFault, match="version 4"):
        generator.generate(generator.generate_task(version=4))


def test_a_lost_condition_is_blob_lost(flux_folder: Path, tmp_path: Path) -> None:
    on = bench("generator", job_config(flux_folder), tmp_path)
    on.context.lost.add(on.conditions["p1"].id)
    with pytest.raises(TaskFault) as fault:
        on.generate(on.generate_task())
    assert fault.value.error.reason == "blob_lost"


def test_conditions_are_pulled_once(generator: Bench) -> None:
    generator.generate(generator.generate_task())
    generator.context.lost.update(ref.id for ref in generator.conditions.values())
    generator.generate(generator.generate_task())


def test_seeds_are_the_requests(generator: Bench) -> None:
    request = SampleRequest(index=0, initial_seed=1, noise_seed=2, timesteps=WINDOW)
    group = replace(generator.groups()[0], samples=(request, replace(request, index=1, noise_seed=3)))
    kept = tensors(generator, generator.generate(generator.generate_task(groups=[group])))
    assert torch.equal(kept["p0/0/latents"][0], kept["p0/1/latents"][0])
    assert not torch.allclose(kept["p0/0/latents"][1], kept["p0/1/latents"][1], atol=1e-3)
