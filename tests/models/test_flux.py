"""The flux family is the stock pipeline, cut into pieces: without noise it gives the stock latents and pictures."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digend.diffusion.kernels import transition
from digend.models.flux import FluxOptions, spec
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


@pytest.fixture(scope="module")
def stock(flux_folder: Path) -> Any:
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(flux_folder)
    pipeline.set_progress_bar_config(disable=True)
    for name in ("transformer", "text_encoder", "text_encoder_2", "vae"):
        for parameter in getattr(pipeline, name).parameters():
            parameter.data = parameter.data.clone()
    return pipeline


def rngs() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


def drawn_by_stock(pipeline: Any, num_timesteps: int, output_type: str) -> Any:
    return pipeline(
        list(PROMPTS),
        height=SHAPE.height,
        width=SHAPE.width,
        num_inference_steps=num_timesteps,
        guidance_scale=GUIDANCE,
        max_sequence_length=8,
        generator=rngs(),
        output_type=output_type,
    ).images


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


@pytest.mark.parametrize("num_timesteps", [1, 2, 5, 8])
def test_without_noise_latents_equal_the_stock_pipelines(model: FluxModel, stock: Any, num_timesteps: int) -> None:
    expected = drawn_by_stock(stock, num_timesteps, "latent")
    assert torch.equal(drawn_by_model(model, num_timesteps), expected)


def test_pixels_equal_the_stock_pictures(model: FluxModel, stock: Any) -> None:
    pictures = drawn_by_stock(stock, 4, "pil")
    pixels = (model.decode(drawn_by_model(model, 4), SHAPE) * 255).round().to(torch.uint8)
    assert pixels.shape == (3, 3, SHAPE.height, SHAPE.width)
    for picture, ours in zip(pictures, pixels, strict=True):
        assert np.array_equal(np.asarray(picture), ours.permute(1, 2, 0).numpy())


def test_guidance_reaches_the_model(model: FluxModel) -> None:
    latents, conditions = model.initial(rngs(), SHAPE), model.encode(PROMPTS)
    sigma = torch.full((3,), 0.5)
    with torch.no_grad():
        one, other = (model.velocity(latents, sigma, conditions, scale, SHAPE) for scale in (1.0, 8.0))
    assert not torch.allclose(one, other, atol=1e-4)


def test_samples_of_one_pass_may_be_at_different_sigmas(model: FluxModel) -> None:
    latents, conditions = model.initial(rngs(), SHAPE), model.encode(PROMPTS)
    mixed = torch.tensor([1.0, 0.6, 0.2])
    with torch.no_grad():
        together = model.velocity(latents, mixed, conditions, GUIDANCE, SHAPE)
        for row in range(3):
            alone = model.velocity(
                latents[row : row + 1], mixed[row : row + 1], conditions[row : row + 1], GUIDANCE, SHAPE
            )
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-5)


def test_sigmas_are_exact_float32_and_end_in_zero(model: FluxModel) -> None:
    sigmas = model.sigmas(6, SHAPE)
    assert (len(sigmas), sigmas[0], sigmas[-1]) == (7, 1.0, 0.0)
    assert sigmas == torch.tensor(sigmas, dtype=torch.float32).tolist()
    assert sigmas != model.sigmas(6, Shape(height=512, width=512, num_frames=1))


def test_two_loads_give_the_same_bits(model: FluxModel, flux_folder: Path) -> None:
    again = load(str(flux_folder), "cpu", "float32", OPTIONS)
    assert torch.equal(drawn_by_model(model, 3), drawn_by_model(again, 3))


def test_everything_is_frozen_and_aligned(model: FluxModel) -> None:
    (component,) = model.trainable.values()
    assert not component.training
    assert not any(parameter.requires_grad for parameter in component.parameters())
    assert all(parameter.data_ptr() % 64 == 0 for parameter in component.parameters())


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


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(height=40, width=32, num_frames=1), "sampling.height = 40 is no multiple of 16"),
        (Shape(height=32, width=100, num_frames=1), "nearest is 96"),
        (Shape(height=32, width=32, num_frames=5), "sampling.num_frames"),
    ],
)
def test_shapes_the_model_cannot_draw(model: FluxModel, shape: Shape, words: str) -> None:
    model.check(SHAPE)
    with pytest.raises(ValueError, match=words):
        model.check(shape)


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


def test_encoders_may_go_once_everything_is_encoded(flux_folder: Path, tmp_path: Path) -> None:
    model = load(str(flux_folder), "cpu", "float32", OPTIONS)
    conditions: Sequence[Any] = model.encode(PROMPTS)
    model.unload_encoders()
    with torch.no_grad():
        model.velocity(model.initial(rngs(), SHAPE), torch.full((3,), 0.5), conditions, GUIDANCE, SHAPE)
    model.save(str(tmp_path / "saved"))
    saved = load(str(tmp_path / "saved"), "cpu", "float32", OPTIONS)
    assert torch.equal(saved.encode(PROMPTS)[0]["prompt_embeds"], conditions[0]["prompt_embeds"])


def test_it_is_a_model(model: FluxModel) -> None:
    as_model: Model = model  # mypy compares the signatures
    assert isinstance(as_model.trainable["transformer"], torch.nn.Module)


def test_the_spec_names_what_exists(model: FluxModel) -> None:
    names = [name for name, _ in model.trainable["transformer"].named_modules()]
    assert all(any(name.endswith(target) for name in names) for target in spec.lora_targets)
