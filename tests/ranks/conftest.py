"""One crew for all tests of a module: its processes are reused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.families import FAMILIES
from tests.ranks.crew import Crew


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    torch.set_num_threads(1)
    made = Crew(tmp_path_factory.mktemp("crew"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def flux_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["flux"].build(tmp_path_factory.mktemp("flux"))
