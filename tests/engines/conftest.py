"""One tiny folder a family for all engine tests, made when it is first asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.families import folders_in


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return folders_in(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def flux_folder(folders: Callable[[str], Path]) -> Path:
    return folders("flux")
