"""What digenctl takes from the settings, and in which order."""

import subprocess
import sys
from pathlib import Path

import pytest

from clients.address import DEFAULT_ADDRESS, ClientSettings, client_settings
from digend.config.errors import ConfigError
from digend.config.layers import Places
from tests.clients.conftest import ROOT


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a box, looked at from an empty folder."""
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "digend.toml").write_text('address = "ipc:///run/box.sock"\n')
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def found(etc: Path, node: Path | None = None, **environ: str) -> ClientSettings:
    environ = {"DIGEND_ETC": str(etc), "XDG_CONFIG_HOME": str(etc.parent / "home"), **environ}
    return client_settings(Places.of(str(node) if node else None, environ=environ), environ)


def user(etc: Path, text: str) -> None:
    path = etc.parent / "home" / "digend" / "digend.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_the_order_of_places(etc: Path, tmp_path: Path) -> None:
    assert found(etc).address == "ipc:///run/box.sock"
    (etc / "conf.d").mkdir()
    (etc / "conf.d" / "a.toml").write_text('address = "ipc:///run/piece.sock"\n')
    assert found(etc).address == "ipc:///run/piece.sock"
    user(etc, 'address = "ipc:///run/user.sock"\n')
    assert found(etc).address == "ipc:///run/user.sock"
    Path(".digend").mkdir()
    Path(".digend/driver.sock").touch()
    assert found(etc).address == f"ipc://{tmp_path}/work/.digend/driver.sock"
    mine = tmp_path / "mine.toml"
    mine.write_text('address = "ipc://mine.sock"\n')
    assert found(etc, mine).address == f"ipc://{tmp_path}/mine.sock"
    assert found(etc, DIGEND_NODE=str(mine)).address == f"ipc://{tmp_path}/mine.sock"
    assert found(etc, mine, DIGEND_ADDRESS="ipc://other.sock").address == f"ipc://{tmp_path}/work/other.sock"


def test_without_any_of_them_it_is_the_default(etc: Path, tmp_path: Path) -> None:
    (etc / "digend.toml").unlink()
    assert found(etc).address == f"ipc://{tmp_path}/work/{DEFAULT_ADDRESS.removeprefix('ipc://')}"
    user(etc, "[client]\nheader = false\n")
    assert found(etc) == ClientSettings(f"ipc://{tmp_path}/work/.digend/driver.sock", header=False)


def test_a_box_that_says_no_address_has_the_units_address(etc: Path) -> None:
    (etc / "digend.toml").write_text("[driver]\n")
    assert found(etc).address == "ipc:///run/digend/driver.sock"


def test_preferences_come_from_layers_too(etc: Path) -> None:
    user(etc, "[client]\nreply_timeout_s = 30\nheader = false\n")
    assert (found(etc).reply_timeout_s, found(etc).header) == (30.0, False)
    assert found(etc, DIGEND_CLIENT__REPLY_TIMEOUT_S="0.5").reply_timeout_s == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("address = 3\n", ":1: address = 3: expected string"),
        ('address = "tcp://10.0.0.3:5757"\n', ":1: address: expected 127.0.0.1"),
        ("[client]\nreply_timeout_s = 0\n", ":2: client.reply_timeout_s = 0: expected number >= 0.05"),
        ("[client]\nheader = 1\n", ":2: client.header = 1: expected true or false"),
        ("[client]\nheadr = true\n", ":2: client.headr = true: unknown key; did you mean client.header?"),
        ("client = 1\n", ":1: client = 1: expected table"),
        ("address = \n", ":1: not TOML"),
    ],
)
def test_what_is_not_plainly_right_is_named(etc: Path, text: str, expected: str) -> None:
    (etc / "digend.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        found(etc)
    assert f"{etc}/digend.toml{expected}" in str(caught.value)


def test_a_bad_variable_is_named(etc: Path) -> None:
    with pytest.raises(ConfigError, match=r'^DIGEND_ADDRESS: address = "http://x": expected'):
        found(etc, DIGEND_ADDRESS="http://x")


def test_a_mistyped_variable_is_warned_about(etc: Path) -> None:
    (warning,) = found(etc, DIGEND_ADRESS="ipc://x", DIGEND_LOG_LEVEL="debug").warnings
    assert warning == "warning: DIGEND_ADRESS is no setting; did you mean DIGEND_ADDRESS?"


def test_it_needs_no_model(etc: Path) -> None:
    code = (
        "import sys\nfrom clients.address import client_settings\nfrom digend.config.layers import Places\n"
        "assert client_settings(Places(etc=sys.argv[1])).address == 'ipc:///run/box.sock'\n"
        "assert not {'pydantic', 'pydantic_settings'} & sys.modules.keys()\n"
    )
    environ = {"PYTHONPATH": str(ROOT), "HOME": str(etc)}
    subprocess.run([sys.executable, "-c", code, str(etc)], env=environ, check=True)
