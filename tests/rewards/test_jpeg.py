"""The JPEG rewards: formula, signs, video."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from digend.rewards import jpeg
from digend.rewards.spec import Batch, NoOptions, Reward, Scores


def score(reward: Reward, pixels: NDArray[np.float32]) -> Scores:
    return reward.score(Batch(pixels=pixels, prompts=["x"] * len(pixels), metadata=[{}] * len(pixels)))


def flat_and_noisy() -> NDArray[np.float32]:
    noise = np.random.default_rng(0).random((3, 64, 64), dtype=np.float32)
    return np.stack([np.full((3, 64, 64), 0.5, np.float32), noise])


def test_compressibility_prefers_the_flat_picture() -> None:
    flat, noisy = score(jpeg.build_compressibility(NoOptions(), "cpu"), flat_and_noisy()).values
    assert flat is not None
    assert noisy is not None
    assert noisy < flat < 0


def test_incompressibility_is_the_negative() -> None:
    pixels = flat_and_noisy()
    less = score(jpeg.build_compressibility(NoOptions(), "cpu"), pixels)
    more = score(jpeg.build_incompressibility(NoOptions(), "cpu"), pixels)
    assert [-value for value in less.values if value is not None] == list(more.values)
    assert less.components == more.components


def test_the_formula() -> None:
    pixels = flat_and_noisy()
    buffer = io.BytesIO()
    image = np.rint(pixels[1] * 255).astype(np.uint8).transpose(1, 2, 0)
    Image.fromarray(image).save(buffer, format="JPEG", quality=95)
    values = score(jpeg.build_compressibility(NoOptions(), "cpu"), pixels).values
    assert values[1] == pytest.approx(-len(buffer.getvalue()) / 1000 / 500)


def test_a_video_counts_as_its_mean_frame() -> None:
    images = flat_and_noisy()
    reward = jpeg.build_compressibility(NoOptions(), "cpu")
    first, second = score(reward, images).values
    assert first is not None
    assert second is not None
    assert score(reward, images[None]).values[0] == pytest.approx((first + second) / 2)


def test_specs_name_their_builders() -> None:
    for spec in (jpeg.compressibility, jpeg.incompressibility):
        module, _, function = spec.builder.partition(":")
        assert module == jpeg.__name__
        assert callable(getattr(jpeg, function))
