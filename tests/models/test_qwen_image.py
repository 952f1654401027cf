"""Qwen-Image is the stock pipeline, cut into pieces: without noise it gives the stock latents and pictures."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from digend.models import guidance
from digend.models.spec import Shape
from digend.rl.sigmas import flux, mu_for
from tests.models import checks
from tests.models.checks import Subject
from tests.pipelines import PROMPTS


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("qwen_image")


@pytest.mark.parametrize("num_timesteps", [2, 5])
def test_latents(subject: Subject, num_timesteps: int) -> None:
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_pixels(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_velocities(subject: Subject) -> None:
    checks.samples_may_be_at_different_sigmas(subject)
    checks.guidance_matters(subject, negative_prompt="a blue square")


def test_prompts_keep_their_lengths_and_are_encoded_alike_in_company(subject: Subject) -> None:
    assert len({len(each["prompt_embeds"]) for each in subject.conditions}) > 1
    together = subject.model.encode(PROMPTS)
    for one, alone in zip(together, subject.conditions, strict=True):
        torch.testing.assert_close(one["prompt_embeds"], alone["prompt_embeds"], rtol=1e-4, atol=1e-5)


def test_guided_velocities_have_the_conditional_norm() -> None:
    rng = torch.Generator().manual_seed(0)
    conditional, unconditional = torch.randn(2, 3, 4, 8, generator=rng).unbind(0)
    guided = guidance.rescaled(conditional, unconditional, 4.0)
    torch.testing.assert_close(guided.norm(dim=-1), conditional.norm(dim=-1))


def test_sigmas_are_shifted_by_size_and_end_at_the_terminal(subject: Subject) -> None:
    shape = subject.family.shape
    mu = mu_for(shape.height * shape.width // 256, 256, 8192, 0.5, 0.9)
    assert subject.model.sigmas(8, shape) == pytest.approx(list(flux(8, mu, shift_terminal=0.02)), abs=1e-7)
    assert subject.model.sigmas(8, shape)[-2] == pytest.approx(0.02)
    assert subject.model.sigmas(8, shape) != subject.model.sigmas(8, Shape(height=512, width=512, num_frames=1))


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
        (Shape(height=32, width=32, num_frames=5), "sampling.num_frames = 5: qwen_image draws images"),
    ],
)
def test_shapes_the_model_cannot_draw(subject: Subject, shape: Shape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject.model.check(shape)
