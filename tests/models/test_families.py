"""Every family is its stock pipeline, cut into pieces: without noise it gives the stock latents, pictures and films.

What is a family's own is in its own module beside this one.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from digend.models.spec import Shape
from tests.families import FAMILIES
from tests.models import checks
from tests.models.checks import Subject

FEWEST = {"qwen_image": 2}
"""Timesteps of the shortest list; elsewhere 1."""
MORE = {"wan": 4, "hunyuan_video": 3}
"""Of the longer one; elsewhere 5, which cross the boundary of Wan2.2's two transformers."""
IMAGE = Shape(height=32, width=32, num_frames=1)
CLIP = Shape(height=32, width=32, num_frames=5)
TOO_HIGH = "sampling.height = 40 is no multiple of 16"


@pytest.fixture(params=list(FAMILIES))
def subject(request: pytest.FixtureRequest, subjects: Callable[[str], Subject]) -> Subject:
    return subjects(request.param)


def test_latents_of_the_shortest_list(subject: Subject) -> None:
    num_timesteps = FEWEST.get(subject.family.name, 1)
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_latents(subject: Subject) -> None:
    num_timesteps = MORE.get(subject.family.name, 5)
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_pixels(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_velocities(subject: Subject) -> None:
    """With Wan2.2 samples of one pass go through the transformers of their own timesteps."""
    checks.samples_may_be_at_different_sigmas(subject)


def test_guidance(subject: Subject) -> None:
    unconditional = "negative_prompt_embeds" in subject.family.conditions
    checks.guidance_matters(subject, negative_prompt="a blue square" if unconditional else None)


def test_sigmas(subject: Subject) -> None:
    checks.sigmas_are_exact(subject, FEWEST.get(subject.family.name, 1))


def test_what_is_loaded(subject: Subject, tmp_path: Path) -> None:
    checks.the_spec_names_what_exists(subject)
    checks.everything_is_frozen_and_aligned(subject)
    checks.a_broken_key_is_counted(subject, tmp_path / "broken")


def test_half_precision(subject: Subject) -> None:
    checks.bf16_works(subject)


def test_the_adapter(subject: Subject, tmp_path: Path) -> None:
    checks.the_adapter_loads_into_stock(subject, tmp_path)


def test_encoders(subject: Subject, tmp_path: Path) -> None:
    checks.encoders_may_go(subject, tmp_path / "saved")


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("flux", Shape(height=40, width=32, num_frames=1), TOO_HIGH),
        ("flux", Shape(height=32, width=100, num_frames=1), "nearest is 96"),
        ("flux", CLIP, "sampling.num_frames"),
        ("sd3", Shape(height=40, width=32, num_frames=1), TOO_HIGH),
        ("sd3", Shape(height=32, width=272, num_frames=1), "sampling.width = 272 is more than the 256"),
        ("sd3", CLIP, "sampling.num_frames = 5: sd3 draws images"),
        ("qwen_image", Shape(height=40, width=32, num_frames=1), TOO_HIGH),
        ("qwen_image", CLIP, "sampling.num_frames = 5: qwen_image draws images"),
        ("wan", Shape(height=40, width=32, num_frames=5), TOO_HIGH),
        ("wan", Shape(height=32, width=1024, num_frames=5), "sampling.width = 1024 is more than the 512"),
        ("wan", Shape(height=32, width=32, num_frames=7), "num_frames = 7 is not 1 . a multiple of 4.*nearest is 9"),
        ("wan22", Shape(height=40, width=32, num_frames=5), TOO_HIGH),
        ("hunyuan_video", Shape(height=40, width=32, num_frames=5), TOO_HIGH),
        ("hunyuan_video", Shape(height=32, width=32, num_frames=3), "num_frames = 3 is not 1 . a multiple of 4"),
    ],
)
def test_shapes_it_cannot_draw(subjects: Callable[[str], Subject], name: str, shape: Shape, words: str) -> None:
    subjects(name).model.check(subjects(name).family.shape)
    with pytest.raises(ValueError, match=words):
        subjects(name).model.check(shape)


@pytest.mark.parametrize("name", ["wan", "wan22", "hunyuan_video"])
def test_one_frame_is_an_image(subjects: Callable[[str], Subject], name: str) -> None:
    model = subjects(name).model
    latents = model.initial(checks.generators(), IMAGE)
    assert latents.shape[2] == 1
    assert model.decode(latents, IMAGE).shape == (3, 3, 32, 32)
