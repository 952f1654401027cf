"""One tiny folder a family for all family tests, made when it is first asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.families import FAMILIES
from tests.models.checks import Subject


@pytest.fixture(scope="session")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    torch.set_num_threads(1)
    made: dict[str, Subject] = {}

    def subject(name: str) -> Subject:
        if name not in made:
            family = FAMILIES[name]
            made[name] = Subject(family, family.build(tmp_path_factory.mktemp(name)))
        return made[name]

    return subject


@pytest.fixture(scope="session")
def flux_folder(subjects: Callable[[str], Subject]) -> Path:
    return subjects("flux").folder
