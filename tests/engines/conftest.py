"""One tiny flux folder for all engine tests."""

from pathlib import Path

import pytest
import torch

from tests.pipelines import build_flux


@pytest.fixture(scope="session")
def flux_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return build_flux(tmp_path_factory.mktemp("flux"))
