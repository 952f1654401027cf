"""What is in the wheel and in the source distribution, and that the wheel works where only it is."""

import os
import subprocess
import sys
import tarfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from zipfile import ZipFile

import pytest

from digend import __version__
from digend.plugins import OWN
from tests.packaging.conftest import PACKAGES, ROOT, Built

DIST_INFO = f"digend-{__version__}.dist-info"


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def read(wheel: Path, name: str) -> str:
    with ZipFile(wheel) as archive:
        return archive.read(f"{DIST_INFO}/{name}").decode()


def entry_points(wheel: Path) -> dict[str, dict[str, str]]:
    points: dict[str, dict[str, str]] = {}
    group = ""
    for line in filter(None, read(wheel, "entry_points.txt").splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
            continue
        name, _, value = line.partition(" = ")
        points.setdefault(group, {})[name] = value
    return points


def files_of_packages(source: Path) -> set[str]:
    """With those behind daemons/systemd, a link to the folder at the top."""
    walks = (os.walk(source / package, followlinks=True) for package in PACKAGES)
    found = (Path(folder, name) for walk in walks for folder, _, names in walk for name in names)
    return {str(path.relative_to(source)) for path in found}


def test_the_wheel_has_four_top_level_names(built: Built) -> None:
    assert {name.split("/")[0] for name in names_in(built.wheel)} == {*PACKAGES, DIST_INFO}


def test_the_wheel_has_every_file_of_the_packages(built: Built) -> None:
    assert {name for name in names_in(built.wheel) if not name.startswith(DIST_INFO)} == files_of_packages(built.source)


def test_the_wheel_names_both_programs_and_every_plug_in(built: Built) -> None:
    programs = {"digend": "daemons.main:main", "digenctl": "clients.main:main"}
    assert entry_points(built.wheel) == {"console_scripts": programs, **OWN}


def test_every_entry_point_loads(built: Built) -> None:
    points = EntryPoints(
        EntryPoint(name=name, value=value, group=group)
        for group, named in entry_points(built.wheel).items()
        for name, value in named.items()
    )
    assert all(point.load() for point in points)


def test_the_wheel_says_what_it_is(built: Built) -> None:
    metadata: Message = Parser().parsestr(read(built.wheel, "METADATA"))
    assert metadata["Name"] == "digend"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert f"{DIST_INFO}/licenses/LICENSE" in names_in(built.wheel)


def test_the_source_distribution_has_no_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        folders = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 2}
    assert folders == {*PACKAGES, "digend.egg-info"}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel alone in it. What digend needs comes from this environment."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-index", "--quiet", "--no-warn-script-location", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(built.wheel)], check=True
    )
    return target


def run_installed(installed: Path, *command: str) -> str:
    """The output of a program, run where nothing but the installed wheel can be imported from the project."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-P", *command], cwd=installed, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_the_installed_packages_are_those_of_the_wheel(installed: Path, package: str) -> None:
    where = run_installed(installed, "-c", f"import {package}; print({package}.__file__)")
    assert Path(where.strip()) == installed / package / "__init__.py"


def test_the_installed_programs_run(installed: Path) -> None:
    assert "submit" in run_installed(installed, "bin/digenctl", "--help")
    assert f"digend {__version__}" in run_installed(installed, "bin/digend", "version")


def test_the_installed_program_writes_its_units(installed: Path, tmp_path: Path) -> None:
    program = "/opt/digend/bin/digend"
    run_installed(installed, "bin/digend", "install-units", "--prefix", str(tmp_path), "--digend", program)
    units = {path.name for path in (tmp_path / "lib" / "systemd" / "system").iterdir()}
    assert units == {path.name for path in (ROOT / "systemd").glob("*.service")}
    assert os.access(tmp_path / "lib" / "systemd" / "system-generators" / "digend-instances", os.X_OK)
