"""HunyuanVideo is the stock pipeline, cut into pieces: without noise it gives the stock latents and frames."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from digend.models.spec import Shape
from digend.rl.sigmas import dance
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("hunyuan_video")


@pytest.mark.parametrize("num_timesteps", [1, 3])
def test_latents(subject: Subject, num_timesteps: int) -> None:
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_latents_with_a_second_pass(subject: Subject) -> None:
    """Real guidance on top of the embedded one."""
    family, scale = subject.family, {"true_cfg_scale": 2.0}
    options = {**family.options, **scale, "negative_prompt": "a blue square"}
    guided = Subject(replace(family, options=options, stock={**family.stock, **scale}), subject.folder)
    checks.text_to_latents_is_the_stock_pipelines(guided, 2)
    assert "negative_prompt_embeds" in guided.conditions[0]
    assert "negative_prompt_embeds" not in subject.conditions[0]


def test_frames(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_velocities(subject: Subject) -> None:
    checks.samples_may_be_at_different_sigmas(subject)
    checks.guidance_matters(subject)


def test_sigmas_are_dance_grpos_with_the_schedulers_shift(subject: Subject) -> None:
    checks.sigmas_are_exact(subject)
    assert subject.model.sigmas(8, subject.family.shape) == list(dance(8, 7.0))


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
        (Shape(height=32, width=32, num_frames=3), "num_frames = 3 is not 1 . a multiple of 4.*nearest is"),
    ],
)
def test_shapes_the_model_cannot_draw(subject: Subject, shape: Shape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject.model.check(shape)
