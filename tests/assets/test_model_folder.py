"""The shipped demo model: a stock pipeline folder that needs no network, no remote code and no pickle."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from digend.rewards.shapes_data import CAPTIONS
from digend.rewards.shapes_scoring import IndependentScorer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs/models/shapes-flux"
PROMPTS = ROOT / "configs/jobs/shapes-prompts.txt"


@pytest.fixture(scope="module")
def pipeline() -> Any:
    from diffusers import DiffusionPipeline

    loaded = DiffusionPipeline.from_pretrained(FOLDER, local_files_only=True)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def sample(pipeline: Any, prompts: list[str], seed: int) -> torch.Tensor:
    images = pipeline(
        prompt=prompts,
        height=16,
        width=16,
        num_inference_steps=8,
        max_sequence_length=8,
        generator=torch.Generator().manual_seed(seed),
        output_type="pt",
    ).images
    return torch.as_tensor(images)


def test_the_folder_holds_safetensors_and_text_only() -> None:
    suffixes = {path.suffix for path in FOLDER.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".jinja", ".md"}
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 5_000_000


def test_every_class_in_the_index_is_stock() -> None:
    index = json.loads((FOLDER / "model_index.json").read_text(encoding="utf-8"))
    assert index["_class_name"] == "FluxPipeline"
    libraries = {value[0] for value in index.values() if isinstance(value, list) and value[0]}
    assert libraries == {"diffusers", "transformers"}


def test_the_transformer_has_a_million_parameters(pipeline: Any) -> None:
    assert sum(p.numel() for p in pipeline.transformer.parameters()) == 1_018_860


def test_it_draws_what_is_asked(pipeline: Any) -> None:
    prompts = ["a red circle", "a blue square", "a green diamond", "a white circle"] * 4
    pixels = sample(pipeline, prompts, seed=5)
    assert pixels.shape == (16, 3, 16, 16)
    assert IndependentScorer().score(pixels.numpy(), prompts).mean() > 0.6


def test_one_seed_gives_one_picture(pipeline: Any) -> None:
    one = sample(pipeline, ["a yellow ring"], seed=1)
    assert torch.equal(one, sample(pipeline, ["a yellow ring"], seed=1))
    assert not torch.equal(one, sample(pipeline, ["a yellow ring"], seed=2))


@torch.no_grad()
def test_the_autoencoder_changes_nothing(pipeline: Any) -> None:
    pixels = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    encoded = pipeline.vae.encode(pixels).latent_dist
    assert (encoded.mode() - pixels).abs().max() < 1e-5
    assert encoded.std.max() < 1e-5
    assert (pipeline.vae.decode(pixels).sample - pixels).abs().max() < 1e-5
    assert pipeline.vae_scale_factor == 1


@pytest.mark.parametrize("tokenizer", ["tokenizer", "tokenizer_2"])
def test_each_word_of_a_caption_is_one_token(pipeline: Any, tokenizer: str) -> None:
    encode = getattr(pipeline, tokenizer)
    specials = len(encode("").input_ids)
    token_ids = [encode(caption).input_ids for caption in CAPTIONS]
    assert {len(ids) for ids in token_ids} == {specials + 3}
    assert len({tuple(ids) for ids in token_ids}) == len(CAPTIONS)


@pytest.mark.parametrize("tokenizer", ["tokenizer", "tokenizer_2"])
def test_other_text_is_tokenized_too(pipeline: Any, tokenizer: str) -> None:
    assert len(getattr(pipeline, tokenizer)("a reddish hexagon, 3 of them").input_ids) > 10


def test_embeddings_tell_captions_apart(pipeline: Any) -> None:
    tokens, pooled, _ = pipeline.encode_prompt(prompt=list(CAPTIONS), prompt_2=None, max_sequence_length=8)
    for embeddings in (tokens.flatten(1), pooled):
        assert torch.pdist(embeddings).min() > 0.5


def test_the_prompts_file_lists_the_captions() -> None:
    assert PROMPTS.read_text(encoding="utf-8").splitlines() == list(CAPTIONS)
