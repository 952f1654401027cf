"""What of Qwen-Image is its own: prompts of their own length, guidance that keeps the norm, its sigma list."""

from collections.abc import Callable

import pytest
import torch

from digend.models import guidance
from digend.models.spec import Shape
from digend.rl.sigmas import flux, mu_for
from tests.models.checks import Subject
from tests.pipelines import PROMPTS


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("qwen_image")


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
