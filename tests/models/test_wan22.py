"""Wan2.2 is the stock pipeline with both its transformers: each timestep goes through its own, and both learn."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.families import FAMILIES
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("wan22")


@pytest.mark.parametrize("num_timesteps", [1, 5])
def test_latents(subject: Subject, num_timesteps: int) -> None:
    """With a guidance of its own for the second one; five timesteps cross the boundary."""
    checks.text_to_latents_is_the_stock_pipelines(subject, num_timesteps)
    checks.a_batch_is_the_stock_pipelines(subject, num_timesteps)


def test_the_boundary_is_between_the_timesteps_of_the_test(subject: Subject) -> None:
    high = [sigma * 1000 >= 875 for sigma in subject.model.sigmas(5, subject.family.shape)[:-1]]
    assert True in high
    assert False in high


def test_pixels(subject: Subject) -> None:
    checks.pixels_are_the_stock_pipelines(subject)


def test_velocities(subject: Subject) -> None:
    """One forward pass of samples on both sides of the boundary, each through its own transformer."""
    checks.samples_may_be_at_different_sigmas(subject)
    checks.guidance_matters(subject, negative_prompt="a blue square")


def test_each_transformer_learns_from_its_own_timesteps(subject: Subject) -> None:
    family = subject.family
    model = family.load(subject.folder)
    latents = model.initial(checks.generators()[:2], family.shape)
    for sigma, learns in (([1.0, 0.95], ("transformer",)), ([0.5, 0.1], ("transformer_2",)), ([0.9, 0.8], ())):
        for module in model.trainable.values():
            module.requires_grad_(True).zero_grad(set_to_none=True)
        velocity = model.velocity(latents, torch.tensor(sigma), subject.conditions[:2], 4.0, family.shape)
        velocity.square().sum().backward()  # type: ignore[no-untyped-call]
        touched = [
            name
            for name, module in model.trainable.items()
            if any(parameter.grad is not None for parameter in module.parameters())
        ]
        assert touched == list(learns or model.trainable)


def test_what_is_loaded(subject: Subject, tmp_path: Path) -> None:
    checks.the_spec_names_what_exists(subject)
    checks.everything_is_frozen_and_aligned(subject)
    checks.a_broken_key_is_counted(subject, tmp_path / "broken")


def test_the_adapter(subject: Subject, tmp_path: Path) -> None:
    checks.the_adapter_loads_into_stock(subject, tmp_path)


def test_encoders(subject: Subject, tmp_path: Path) -> None:
    checks.encoders_may_go(subject, tmp_path / "saved")


def test_each_version_is_sent_to_its_family(subject: Subject, subjects: Callable[[str], Subject]) -> None:
    with pytest.raises(ValueError, match=r'model\.family = "wan22"'):
        FAMILIES["wan"].load(subject.folder)
    with pytest.raises(OSError, match="transformer_2 holds no weights"):
        subject.family.load(subjects("wan").folder)
