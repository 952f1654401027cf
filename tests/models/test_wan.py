"""Wan2.1 is the stock pipeline, cut into pieces: without noise it gives the stock latents and frames."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import UniPCMultistepScheduler

from digend.models.spec import Shape
from tests.families import FAMILIES
from tests.models import checks
from tests.models.checks import Subject
from tests.pipelines import build_wan


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("wan")


@pytest.mark.parametrize("num_timesteps", [1, 4])
def test_latents(subject: Subject, num_timesteps: int) -> None:
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_frames(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_one_frame_is_an_image(subject: Subject) -> None:
    shape = Shape(height=32, width=32, num_frames=1)
    latents = subject.model.initial(checks.generators(), shape)
    assert latents.shape[2] == 1
    assert subject.model.decode(latents, shape).shape == (3, 3, 32, 32)


def test_velocities(subject: Subject) -> None:
    checks.samples_may_be_at_different_sigmas(subject)
    checks.guidance_matters(subject, negative_prompt="a blue square")


def test_sigmas(subject: Subject) -> None:
    checks.sigmas_are_exact(subject)


def test_a_checkpoint_with_another_solver_gives_its_sigmas(tmp_path: Path) -> None:
    """Wan's own: UniPC over a flow, whose list is not FlowMatchEuler's."""
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    other = Subject(FAMILIES["wan"], build_wan(tmp_path / "unipc", scheduler=scheduler))
    checks.sigmas_are_exact(other)
    scheduler.set_timesteps(8)
    assert other.model.sigmas(8, other.family.shape) == scheduler.sigmas.tolist()
    drawn = other.family.drawn(other.model, other.conditions, 3, checks.SEEDS)
    assert torch.isfinite(drawn).all()


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
        (Shape(height=40, width=32, num_frames=5), "sampling.height = 40 is no multiple of 16"),
        (Shape(height=32, width=1024, num_frames=5), "sampling.width = 1024 is more than the 512"),
        (Shape(height=32, width=32, num_frames=7), "num_frames = 7 is not 1 . a multiple of 4.*nearest is 9"),
    ],
)
def test_shapes_the_model_cannot_draw(subject: Subject, shape: Shape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject.model.check(shape)
