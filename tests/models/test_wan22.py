"""What of Wan2.2 is its own: each timestep goes through its own transformer, and both learn."""

from collections.abc import Callable

import pytest
import torch

from digend.models.spec import Experts
from tests.families import FAMILIES
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("wan22")


def test_the_boundary_is_between_the_timesteps_of_the_test(subject: Subject) -> None:
    high = [sigma * 1000 >= 875 for sigma in subject.model.sigmas(5, subject.family.shape)[:-1]]
    assert True in high
    assert False in high


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


def test_a_sigma_names_the_transformer_that_draws_there(subject: Subject) -> None:
    model = subject.model
    assert isinstance(model, Experts)
    assert subject.family.spec.experts
    assert [model.expert(sigma) for sigma in (1.0, 0.875, 0.8749, 0.0)] == ["transformer"] * 2 + ["transformer_2"] * 2
    used: list[str] = []
    hooks = [
        module.register_forward_pre_hook(lambda *_, name=name: used.append(name))
        for name, module in model.trainable.items()
    ]
    latents = model.initial(checks.generators()[:1], subject.family.shape)
    for sigma in model.sigmas(5, subject.family.shape)[:-1]:
        used.clear()
        with torch.no_grad():
            model.velocity(latents, torch.tensor([sigma]), subject.conditions[:1], 4.0, subject.family.shape)
        assert used == [model.expert(sigma)] * 2
    for hook in hooks:
        hook.remove()


def test_each_version_is_sent_to_its_family(subject: Subject, subjects: Callable[[str], Subject]) -> None:
    with pytest.raises(ValueError, match=r'model\.family = "wan22"'):
        FAMILIES["wan"].load(subject.folder)
    with pytest.raises(OSError, match="transformer_2 holds no weights"):
        subject.family.load(subjects("wan").folder)
