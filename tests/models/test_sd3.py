"""What of Stable Diffusion 3 is its own: Flow-GRPO's sigma list."""

from collections.abc import Callable

import pytest

from digend.rl.sigmas import sd3_double_shift
from tests.models import checks
from tests.models.checks import Subject


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("sd3")


def test_sigmas_are_those_of_flow_grpo(subject: Subject) -> None:
    checks.sigmas_are_exact(subject)
    assert subject.model.sigmas(10, subject.family.shape) == list(sd3_double_shift(10))
