"""Stable Diffusion 3 is the stock pipeline, cut into pieces: without noise it gives the stock latents and pictures."""

from collections.abc import Callable
from pathlib import Path

import pytest

from digend.models.spec import Shape
from digend.rl.sigmas import sd3_double_shift
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("sd3")


@pytest.mark.parametrize("num_timesteps", [1, 5])
def test_latents(subject: Subject, num_timesteps: int) -> None:
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_pixels(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_velocities(subject: Subject) -> None:
    checks.samples_may_be_at_different_sigmas(subject)
    checks.guidance_matters(subject, negative_prompt="a blue square")


def test_sigmas_are_those_of_flow_grpo(subject: Subject) -> None:
    checks.sigmas_are_exact(subject)
    assert subject.model.sigmas(10, subject.family.shape) == list(sd3_double_shift(10))


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
    ("shape", "words"),
    [
        (Shape(height=40, width=32, num_frames=1), "sampling.height = 40 is no multiple of 16"),
        (Shape(height=32, width=272, num_frames=1), "sampling.width = 272 is more than the 256"),
        (Shape(height=32, width=32, num_frames=5), "sampling.num_frames = 5: sd3 draws images"),
    ],
)
def test_shapes_the_model_cannot_draw(subject: Subject, shape: Shape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject.model.check(shape)
