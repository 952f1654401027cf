"""The fake NVML library, compiled once."""

import shutil
from pathlib import Path

import pytest

from tests.telemetry.fake_nvml import FakeNvml, compile_fake


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here, and the fake NVML is compiled")
    return compile_fake(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(nvml_library, tmp_path / "behaviour")
