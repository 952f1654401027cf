"""constraints.txt pins what pyproject.toml asks for, at versions that pyproject.toml allows."""

import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LISTED = [Requirement(line) for line in [*PROJECT["dependencies"], *EXTRAS["worker"], *EXTRAS["dev"]]]
WANTED = [each for each in LISTED if each.name != "digend"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = {canonicalize_name(name): number for name, _, number in (line.partition("==") for line in LINES)}


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_every_dependency_is_pinned_within_its_range(wanted: Requirement) -> None:
    assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_ranges_are_open(wanted: Requirement) -> None:
    assert {each.operator for each in wanted.specifier} == {">="}


def test_pins_are_exact_sorted_and_public() -> None:
    assert all(PINS.values())
    assert sorted(LINES, key=str.lower) == LINES
    assert not [line for line in LINES if "+" in line], "a local version such as 2.13.0+cpu exists on few indexes"


def test_torch_here_is_the_pinned_one() -> None:
    assert version("torch").partition("+")[0] == PINS[canonicalize_name("torch")]
