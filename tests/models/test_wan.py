"""What of Wan2.1 is its own: a checkpoint with another solver."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import UniPCMultistepScheduler

from tests.families import FAMILIES
from tests.models import checks
from tests.models.checks import Subject
from tests.pipelines import build_wan


@pytest.fixture(scope="module")
def subject(subjects: Callable[[str], Subject]) -> Subject:
    return subjects("wan")


def test_a_checkpoint_with_another_solver_gives_its_sigmas(tmp_path: Path) -> None:
    """Wan's own: UniPC over a flow, whose list is not FlowMatchEuler's."""
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    other = Subject(FAMILIES["wan"], build_wan(tmp_path / "unipc", scheduler=scheduler))
    checks.sigmas_are_exact(other)
    scheduler.set_timesteps(8)
    assert other.model.sigmas(8, other.family.shape) == scheduler.sigmas.tolist()
    drawn = other.family.drawn(other.model, other.conditions, 3, checks.SEEDS)
    assert torch.isfinite(drawn).all()
