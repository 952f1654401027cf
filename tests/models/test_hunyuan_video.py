"""What of HunyuanVideo is its own: real guidance on top of the embedded one, and its sigma list."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from digend.rl.sigmas import dance
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("hunyuan_video")


def test_latents_with_a_second_pass(subject: Subject) -> None:
    """Real guidance on top of the embedded one."""
    family, scale = subject.family, {"true_cfg_scale": 2.0}
    options = {**family.options, **scale, "negative_prompt": "a blue square"}
    guided = Subject(replace(family, options=options, stock={**family.stock, **scale}), subject.folder)
    checks.text_to_latents_is_the_stock_pipelines(guided, 2)
    assert "negative_prompt_embeds" in guided.conditions[0]
    assert "negative_prompt_embeds" not in subject.conditions[0]


def test_sigmas_are_dance_grpos_with_the_schedulers_shift(subject: Subject) -> None:
    checks.sigmas_are_exact(subject)
    assert subject.model.sigmas(8, subject.family.shape) == list(dance(8, 7.0))
