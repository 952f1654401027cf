"""The source distribution and the wheel, built once, from a copy: building leaves files beside what it builds."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "clients", "daemons", "digend")
BESIDE = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "constraints.txt")


@dataclass(frozen=True, slots=True)
class Built:
    """The wheel is made from the source distribution, so what is missing there is missing in both."""

    source: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "systemd", "tests/packaging", "scripts"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored, symlinks=True)
    for name in BESIDE:
        shutil.copy(ROOT / name, source / name)
    dist = source / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return Built(source, sdist, wheel)
