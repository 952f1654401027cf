"""One tiny folder a family for all engine tests, made when it is first asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.families import FAMILIES


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    torch.set_num_threads(1)
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = FAMILIES[name].build(tmp_path_factory.mktemp(name))
        return made[name]

    return folder


@pytest.fixture(scope="session")
def flux_folder(folders: Callable[[str], Path]) -> Path:
    return folders("flux")
