"""What of FLUX is its own: its sigma list, number types, and folders that cannot be loaded."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from digend.diffusion.kernels import transition
from digend.models.flux import FluxOptions
from digend.models.flux_model import FluxModel, load
from digend.models.spec import Model, Shape
from tests.pipelines import MAX_TOKENS, PROMPTS, SIZE

SHAPE = Shape(height=SIZE, width=2 * SIZE, num_frames=1)
SEEDS = (3, 1, 2)
GUIDANCE = 3.5
OPTIONS = FluxOptions(max_sequence_length=8)


@pytest.fixture(scope="module")
def model(flux_folder: Path) -> FluxModel:
    return load(str(flux_folder), "cpu", "float32", OPTIONS)


def rngs() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


@torch.no_grad()
def drawn_by_model(model: FluxModel, num_timesteps: int) -> Tensor:
    sigmas = model.sigmas(num_timesteps, SHAPE)
    conditions = model.encode(PROMPTS)
    latents = model.initial(rngs(), SHAPE)
    for index in range(num_timesteps):
        velocity = model.velocity(latents, torch.full((3,), sigmas[index]), conditions, GUIDANCE, SHAPE)
        step = transition(kernel="flow_sde", sample=latents, velocity=velocity, sigmas=sigmas, index=index, level=0.0)
        latents = step.next_sample
    return latents


def test_sigmas_are_exact_float32_and_end_in_zero(model: FluxModel) -> None:
    sigmas = model.sigmas(6, SHAPE)
    assert (len(sigmas), sigmas[0], sigmas[-1]) == (7, 1.0, 0.0)
    assert sigmas == torch.tensor(sigmas, dtype=torch.float32).tolist()
    assert sigmas != model.sigmas(6, Shape(height=512, width=512, num_frames=1))


def test_two_loads_give_the_same_bits(model: FluxModel, flux_folder: Path) -> None:
    again = load(str(flux_folder), "cpu", "float32", OPTIONS)
    assert torch.equal(drawn_by_model(model, 3), drawn_by_model(again, 3))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_number_types(flux_folder: Path, dtype: str) -> None:
    model = load(str(flux_folder), "cpu", dtype, OPTIONS)
    assert model.dtype == getattr(torch, dtype)
    latents, conditions = model.initial(rngs(), SHAPE), model.encode(PROMPTS)
    assert latents.dtype == torch.float32
    with torch.no_grad():
        velocity = model.velocity(latents, torch.full((3,), 0.5), conditions, GUIDANCE, SHAPE)
    assert velocity.dtype == model.dtype
    assert model.decode(latents, SHAPE).dtype == torch.float32


def without(folder: Path, target: Path, *names: str) -> Path:
    shutil.copytree(folder, target)
    for name in names:
        (target / name).unlink()
    return target


def refused(path: Path, error: type[Exception], words: str, options: FluxOptions = OPTIONS) -> None:
    with pytest.raises(error, match=words):
        load(str(path), "cpu", "float32", options)


def test_folders_that_cannot_be_loaded(flux_folder: Path, tmp_path: Path) -> None:
    weights = "diffusion_pytorch_model.safetensors"
    refused(tmp_path / "none", OSError, "is not a folder")
    refused(without(flux_folder, tmp_path / "a", "model_index.json"), OSError, "model_index.json is missing")
    refused(without(flux_folder, tmp_path / "b", f"transformer/{weights}"), OSError, "transformer holds no weights")
    refused(without(flux_folder, tmp_path / "c", "transformer/config.json"), OSError, "cannot be loaded")
    wrong = without(flux_folder, tmp_path / "d")
    index = wrong / "model_index.json"
    index.write_text(index.read_text().replace("FluxPipeline", "WanPipeline"))
    refused(wrong, ValueError, "names the pipeline WanPipeline, this family needs FluxPipeline")
    torn = without(flux_folder, tmp_path / "e")
    (torn / "transformer" / weights).write_bytes(b"torn")
    refused(torn, OSError, "cannot be loaded")


def test_more_tokens_than_the_tokenizer_allows_are_refused(flux_folder: Path) -> None:
    refused(flux_folder, ValueError, f"512 is more than the {MAX_TOKENS} tokens", FluxOptions())


def test_it_is_a_model(model: FluxModel) -> None:
    as_model: Model = model  # mypy compares the signatures
    assert isinstance(as_model.trainable["transformer"], torch.nn.Module)
