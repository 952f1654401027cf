"""Where digenctl looks for the driver, in order."""

from pathlib import Path

import pytest

from clients.address import DEFAULT_ADDRESS, find_address


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The node file of a box, looked at from an empty folder."""
    path = tmp_path / "etc" / "node.toml"
    path.parent.mkdir()
    path.write_text('address = "ipc:///run/box.sock"\n')
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return str(path)


def test_what_is_given_comes_first(system: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('address = "ipc:///run/mine.sock"\n')
    environ = {"DIGEND_ADDRESS": "ipc:///run/environ.sock", "DIGEND_NODE": system}
    assert find_address("ipc:///run/given.sock", str(mine), environ, system) == "ipc:///run/given.sock"
    assert find_address(None, str(mine), environ, system) == "ipc:///run/mine.sock"
    assert find_address(None, None, environ, system) == "ipc:///run/environ.sock"
    assert find_address(None, None, {"DIGEND_NODE": str(mine)}, system) == "ipc:///run/mine.sock"


def test_a_driver_of_this_folder_comes_before_that_of_the_box(system: str) -> None:
    assert find_address(None, None, {}, system) == "ipc:///run/box.sock"
    Path(".digend").mkdir()
    Path(".digend/driver.sock").touch()
    assert find_address(None, None, {}, system) == DEFAULT_ADDRESS


def test_without_any_of_them_it_is_the_default(system: str) -> None:
    assert find_address(None, None, {}, f"{system}.none") == DEFAULT_ADDRESS
