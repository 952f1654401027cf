"""Rewards by models from a folder give what the stock classes of transformers give, for images and for frames."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import BlipForImageTextRetrieval, BlipProcessor, CLIPModel, CLIPProcessor

from digend.plugins import load_object, reward_spec, validate_options
from digend.rewards.frames import PerFrame
from digend.rewards.image_reward import MEAN, STD
from digend.rewards.local import need, picture
from digend.rewards.spec import Batch, Reward
from tests.rewards.tiny_models import save_blip, save_clip, save_head

PROMPTS = ["a red circle", "photo of a blue square", "a triangle", "a green circle of red"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_clip(tmp_path_factory.mktemp("clip"))
    save_head(folder / "head.safetensors", 12)
    return folder


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_blip(tmp_path_factory.mktemp("blip"))
    save_head(folder / "head.safetensors", 16)
    return folder


def pictures(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).random(shape, dtype=np.float32)


def images() -> list[Any]:
    return [picture(each) for each in pictures(4, 3, 40, 48)]


def built(name: str, **options: Any) -> Reward:
    spec = reward_spec(name)
    build: Any = load_object(spec.builder)
    reward: Reward = build(validate_options(spec, options, "rewards[0].options"), "cpu")
    return reward


def scored(name: str, folder: Path, told: list[int] | None = None, **options: Any) -> list[float | None]:
    batch = Batch(
        pixels=pictures(4, 3, 40, 48),
        prompts=PROMPTS,
        metadata=[{}] * 4,
        scored=(told if told is not None else []).append,
    )
    return list(built(name, path=str(folder), **options).score(batch).values)


def stock_cosines(folder: Path) -> tuple[torch.Tensor, float]:
    """Diagonal of the stock model's logits, divided by its own scale."""
    model, processor = CLIPModel.from_pretrained(folder).eval(), CLIPProcessor.from_pretrained(folder)
    inputs = processor(
        text=PROMPTS, images=images(), padding="max_length", max_length=20, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        logits = model(**inputs).logits_per_image.diagonal()
    scale = float(model.logit_scale.detach().exp())
    return logits / scale, scale


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_clip_score_and_hpsv2_are_cosines(clip: Path, batch_size: int) -> None:
    expected, _ = stock_cosines(clip)
    told: list[int] = []
    assert scored("clip_score", clip, told, batch_size=batch_size) == pytest.approx(expected.tolist(), abs=1e-6)
    assert scored("hpsv2", clip, batch_size=batch_size) == pytest.approx(expected.tolist(), abs=1e-6)
    assert told == [min(at + batch_size, 4) for at in range(0, 4, batch_size)]


def test_pickscore(clip: Path) -> None:
    cosines, scale = stock_cosines(clip)
    assert scale == pytest.approx(100, rel=1e-3)
    assert scored("pickscore", clip) == pytest.approx((scale * cosines / 26).tolist(), abs=1e-5)


def test_aesthetic(clip: Path) -> None:
    model, processor = CLIPModel.from_pretrained(clip).eval(), CLIPProcessor.from_pretrained(clip)
    with torch.no_grad():
        given = model.get_image_features(**processor.image_processor(images=images(), return_tensors="pt"))
        embeddings = getattr(given, "pooler_output", given)
        expected = through_head(embeddings / embeddings.norm(dim=-1, keepdim=True), clip)
    assert scored("aesthetic", clip, batch_size=3) == pytest.approx(expected, abs=1e-5)


def test_image_reward(blip: Path) -> None:
    model, processor = BlipForImageTextRetrieval.from_pretrained(blip).eval(), BlipProcessor.from_pretrained(blip)
    inputs = processor(
        text=PROMPTS, images=images(), padding="max_length", max_length=35, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = model(**inputs).question_embeds[:, 0]
        expected = [(value - MEAN) / STD for value in through_head(states, blip)]
    assert scored("image_reward", blip, batch_size=3) == pytest.approx(expected, abs=1e-5)
    assert np.std(expected) > 1e-4


def through_head(embeddings: torch.Tensor, folder: Path) -> list[float]:
    """Torch's own layers, dropout and all, in the order of the authors' module."""
    nn = torch.nn
    layers = nn.Sequential(
        *(nn.Linear(embeddings.shape[1], 1024), nn.Dropout(0.2), nn.Linear(1024, 128), nn.Dropout(0.2)),
        *(nn.Linear(128, 64), nn.Dropout(0.1), nn.Linear(64, 16), nn.Linear(16, 1)),
    ).eval()
    weights: Mapping[str, torch.Tensor] = load_file(folder / "head.safetensors")
    layers.load_state_dict({name.removeprefix("layers."): value for name, value in weights.items()})
    values: list[float] = layers(embeddings)[:, 0].tolist()
    return values


def test_other_precisions_are_near(clip: Path) -> None:
    exact = scored("clip_score", clip)
    assert scored("clip_score", clip, dtype="bfloat16") == pytest.approx(exact, abs=0.05)


def test_what_is_missing_is_named(clip: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder on this box"):
        built("clip_score", path=str(tmp_path / "absent"))
    with pytest.raises(ValueError, match=r"no file .*head.safetensors"):
        built("aesthetic", path=str(save_clip(tmp_path / "clip")))
    save_file({"other": torch.zeros(1)}, tmp_path / "clip" / "head.safetensors")
    with pytest.raises(ValueError, match=r"has no layers.0.weight \(it has other\)"):
        built("aesthetic", path=str(tmp_path / "clip"))


def test_a_package_that_is_missing_is_named_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"needs that-package .*pip install 'digend\[that\]'"):
        need("no_such_module", "that-package", "that")


@pytest.mark.parametrize("how", ["mean", "min", "max", "first", "middle", "last"])
def test_frames_of_a_video(clip: Path, how: str) -> None:
    videos = pictures(2, 3, 3, 40, 48)
    reward = built("clip_score", path=str(clip), batch_size=4)
    by_frame = np.array(
        [
            reward.score(Batch(pixels=video, prompts=[prompt] * 3, metadata=[{}] * 3)).values
            for video, prompt in zip(videos, PROMPTS, strict=False)
        ],
        dtype=float,
    )
    told: list[int] = []
    batch = Batch(pixels=videos, prompts=PROMPTS[:2], metadata=[{}] * 2, scored=told.append)
    with pytest.raises(ValueError, match='say frames = "mean"'):
        reward.score(batch)
    places = {"first": 0, "middle": 1, "last": 2}
    expected = by_frame[:, places[how]] if how in places else getattr(by_frame, how)(axis=1)
    assert PerFrame(reward, how).score(batch).values == pytest.approx(expected.tolist(), abs=1e-6)
    assert told[-1] == 2
