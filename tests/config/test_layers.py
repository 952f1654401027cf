"""Layers of settings: who wins, who is blamed, what paths are relative to."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from digend.config.emit import toml_value
from digend.config.errors import ConfigError
from digend.config.inspection import check_layers
from digend.config.inspection import settings as rows_of
from digend.config.layers import Layer, Layers, Places, variable
from digend.config.loader import Loaded, load_settings, warnings
from digend.config.node import NodeConfig
from digend.config.section import Section

PLACES = ("digend.toml", "conf.d/10.toml", "conf.d/9.toml", "user", "variables", "flags")
"""Weakest first."""

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["box", "b-1", "x.y"]),
    "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "recorder": st.booleans(),
    "reward_paths": st.lists(st.sampled_from(["/a", "/b"]), max_size=2),
    "generator.slots": st.integers(0, 2),
    "generator.threads": st.integers(1, 9),
    "trainer.device": st.sampled_from(["cpu", "cuda:0"]),
    "timing.lost_s": st.floats(5, 99) | st.integers(5, 99),
    "timing.rejoin_s": st.floats(1, 99),
    "client.header": st.booleans(),
}
layers_of_keys = st.fixed_dictionaries({}, optional=VALUES)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in flat.items():
        head, _, tail = key.rpartition(".")
        (table.setdefault(head, {}) if head else table)[tail] = value
    return table


def written(root: Path, said: Mapping[str, Mapping[str, Any]]) -> tuple[Places, dict[str, str]]:
    """Files, variables and flags that say so. `root` is empty."""
    environ = {"DIGEND_ETC": str(root), "XDG_CONFIG_HOME": str(root / "home"), "HOME": "/nowhere"}
    flags: list[str] = []
    for place, flat in said.items():
        if place == "variables":
            environ.update({variable(key): toml_value(value) for key, value in flat.items()})
        elif place == "flags":
            flags = [f"{key}={toml_value(value)}" for key, value in flat.items()]
        else:
            path = root / "home" / "digend" / "digend.toml" if place == "user" else root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(tomli_w.dumps(nested(flat)), encoding="utf-8")
    return Places.of(flags=flags, environ=environ), environ


def load(root: Path, files: Mapping[str, str], *flags: str, **environ: str) -> Loaded:
    """Settings of a box with these files; "home" is the user's."""
    environ = {"DIGEND_ETC": str(root / "etc"), "XDG_CONFIG_HOME": str(root / "home"), **environ}
    for name, text in files.items():
        path = root / "home/digend/digend.toml" if name == "home" else root / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return load_settings(Places.of(flags=flags, environ=environ), environ)


def as_units_do(root: Path, **environ: str) -> NodeConfig:
    environ = {"DIGEND_ETC": str(root / "etc"), "XDG_CONFIG_HOME": str(root / "home"), **environ}
    return load_settings(Places.of(system=True, environ=environ), environ).config


def at(table: Any, key: str) -> Any:
    for part in key.split("."):
        table = table[part]
    return table


@settings(max_examples=60)
@given(st.fixed_dictionaries({place: layers_of_keys for place in PLACES}))
def test_the_strongest_that_says_a_key_counts_and_is_named(said: dict[str, dict[str, Any]]) -> None:
    with TemporaryDirectory(prefix="dg") as folder:
        root = Path(folder)
        loaded = load_settings(*written(root, said))
        shown = {row.key: row for row in rows_of(loaded.config, loaded.layers)}
        names = {place: str(root / place) for place in PLACES[:3]} | {"user": str(root / "home/digend/digend.toml")}
        for key in VALUES:
            winner = next((place for place in reversed(PLACES) if key in said[place]), None)
            if winner is None:
                assert key not in shown or shown[key].origin == "default"
                continue
            assert at(loaded.config.model_dump(), key) == said[winner][key]
            origin = {"variables": variable(key), "flags": "--set"}.get(winner) or names[winner]
            assert shown[key].value == said[winner][key]
            assert shown[key].origin.startswith(origin)
        merged = loaded.layers.table
        assert NodeConfig.model_validate(merged).model_dump(exclude={"state", "runs", "address"}) == (
            loaded.config.model_dump(exclude={"state", "runs", "address"})
        ), "both merge alike"


def test_a_node_file_takes_the_place_of_files_only(tmp_path: Path) -> None:
    load(tmp_path, {"digend.toml": 'name = "etc"\nlog_level = "error"\n', "home": 'name = "home"\n'})
    node = tmp_path / "node.toml"
    node.write_text('name = "node"\n')
    environ = {"DIGEND_ETC": str(tmp_path / "etc"), "DIGEND_TIMING__LOST_S": "40"}
    for places in (Places.of(str(node), environ=environ), Places.of(environ={**environ, "DIGEND_NODE": str(node)})):
        config = load_settings(places, environ).config
        assert (config.name, config.log_level, config.timing.lost_s) == ("node", "info", 40.0)
    flagged = Places.of(str(node), flags=["name=flag"], environ=environ)
    assert load_settings(flagged, environ).config.name == "flag"


def test_units_read_no_file_of_a_user(tmp_path: Path) -> None:
    files = {"digend.toml": 'name = "etc"\n', "home": 'name = "home"\n'}
    assert load(tmp_path, files).config.name == "home"
    assert as_units_do(tmp_path, DIGEND_NODE="/nowhere.toml").name == "etc"


def test_paths_are_those_of_the_file_that_says_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"digend.toml": 'state = "s"\n', "conf.d/a.toml": 'runs = "../r"\n', "home": 'reward_paths = ["mine"]\n'}
    config = load(tmp_path, files, DIGEND_ADDRESS="ipc://here.sock").config
    assert config.state == str(tmp_path / "etc/s")
    assert config.runs == str(tmp_path / "etc/r")
    assert config.reward_paths == [str(tmp_path / "home/digend/mine")]
    assert config.address == f"ipc://{tmp_path}/here.sock"


def test_places_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of systemd where the box is configured, those of the folder where it is not."""
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path, {"home": ""}).config.state == str(tmp_path / ".digend")
    assert as_units_do(tmp_path).state == "/var/lib/digend"
    box = load(tmp_path, {"conf.d/x.toml": ""})
    assert (box.config.state, box.config.address) == ("/var/lib/digend", "ipc:///run/digend/driver.sock")
    assert box.layers.where("state") == "default of a box"


@pytest.mark.parametrize(
    ("files", "environ", "flags", "expected"),
    [
        ({"digend.toml": "\n[timng]\n"}, {}, (), "etc/digend.toml:2: timng: unknown key; did you mean timing?"),
        (
            {"digend.toml": "[generator]\nslots = 1\n", "conf.d/a.toml": '[generator]\nslots = "2"\n'},
            {},
            (),
            'etc/conf.d/a.toml:2: generator.slots = "2": expected integer >= 0',
        ),
        (
            {"digend.toml": "[timing]\nlost_s = 60.0\n"},
            {"DIGEND_TIMING__LOST_S": "3"},
            (),
            "DIGEND_TIMING__LOST_S: timing.lost_s: must be more than timing.torpid_s (4)",
        ),
        (
            {"digend.toml": "[timing]\ntorpid_s = 3.0\n", "home": "\n[timing]\nlost_s = 2.0\n"},
            {},
            (),
            "home/digend/digend.toml:3: timing.lost_s: must be more than timing.torpid_s (3)",
        ),
        ({}, {"DIGEND_LOG_LEVEL": "warn"}, (), 'DIGEND_LOG_LEVEL: log_level = "warn": expected one of debug'),
        ({}, {"DIGEND_LOG_LEVEL": "warn"}, (), "did you mean warning?"),
        ({}, {"DIGEND_GENERATOR": "{ slot = 2 }"}, (), "DIGEND_GENERATOR: generator.slot = 2: unknown key; did you"),
        ({}, {"DIGEND_TIMING": "3", "DIGEND_TIMING__LOST_S": "3"}, (), "DIGEND_TIMING__LOST_S: timing.lost_s: another"),
        ({}, {}, ("timing.lost=3",), "--set: timing.lost = 3: unknown key; did you mean timing.lost_s?"),
        ({}, {}, ("timing",), "--set: 'timing': expected key=value"),
    ],
)
def test_errors_name_the_layer(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], flags: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, files, *flags, **environ)
    assert expected in str(caught.value)


def test_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"digend.toml": "a = \n", "conf.d/a.toml": "b = \n", "home": "c = \n"})
    assert [problem.where.removeprefix(f"{tmp_path}/") for problem in caught.value.problems] == [
        "etc/digend.toml:1",
        "etc/conf.d/a.toml:1",
        "home/digend/digend.toml:1",
    ]


def test_a_check_finds_what_a_stronger_layer_hides(tmp_path: Path) -> None:
    files = {"digend.toml": 'log_level = "loud"\n[trainer]\nthreads = 0\n', "home": 'log_level = "info"\n[timng]\n'}
    environ = {"DIGEND_ETC": str(tmp_path / "etc"), "XDG_CONFIG_HOME": str(tmp_path / "home")}
    with pytest.raises(ConfigError):
        load(tmp_path, files)
    problems, _ = check_layers(Places.of(environ=environ), environ)
    assert {(problem.where.rpartition("/")[2], problem.key) for problem in problems} == {
        ("digend.toml:1", "log_level"),
        ("digend.toml:3", "trainer.threads"),
        ("digend.toml:2", "timng"),
    }


def test_variables_that_are_no_settings(tmp_path: Path) -> None:
    loaded = load(tmp_path, {}, DIGEND_TIMNG__LOST_S="3", DIGEND_ZZZZZZ="1", digend_name="x", DIGEND_WATCHED_GPU="0")
    assert loaded.config == load(tmp_path, {}).config
    assert warnings(loaded.layers) == [
        "warning: DIGEND_TIMNG__LOST_S is no setting; did you mean DIGEND_TIMING__LOST_S?",
        "warning: DIGEND_ZZZZZZ is no setting",
    ]


def test_a_user_s_folder_is_absolute_or_the_usual_one(tmp_path: Path) -> None:
    (tmp_path / ".config/digend").mkdir(parents=True)
    (tmp_path / ".config/digend/digend.toml").write_text('name = "usual"\n')
    for home in ("", "relative"):
        environ = {"DIGEND_ETC": "/nowhere", "XDG_CONFIG_HOME": home, "HOME": str(tmp_path)}
        assert load_settings(Places.of(environ=environ), environ).config.name == "usual"


def test_the_environment_of_the_process_is_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGEND_NAME", "variable")
    monkeypatch.setenv("DIGEND_ETC", str(tmp_path))
    assert load_settings(Places.of(system=True, environ=os.environ)).config.name == "variable"


def test_every_table_of_a_node_is_strict() -> None:
    """Strictness is not inherited by the tables in a table."""

    def tables(model: type[BaseModel]) -> set[type[BaseModel]]:
        found = {model}
        for field in model.model_fields.values():
            for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    found |= tables(inner)
        return found

    assert len(tables(NodeConfig)) >= 7
    assert [model.__name__ for model in tables(NodeConfig) if not model.model_config.get("strict")] == []


class Tracker(Section, strict=True):
    """A service."""

    token: SecretStr = Field(SecretStr(""), description="Who we are.")


class WithSecret(Section, strict=True):
    """Settings with a secret."""

    tracker: Tracker


def test_a_secret_is_masked() -> None:
    layer = Layer("file", {"tracker": {"token": "hush"}}, lambda key: "file:1")
    config = WithSecret.model_validate(layer.table)
    (row,) = rows_of(config, Layers((layer,), "/"))
    assert (row.key, row.value, row.origin, row.secret) == ("tracker.token", "********", "file:1", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, so root")
def test_folders_that_may_not_be_looked_into() -> None:
    """A home of somebody else says nothing; settings of the box that may not be read are an error."""
    with TemporaryDirectory(prefix="dg", dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        files = {"digend.toml": 'name = "etc"\n', "conf.d/a.toml": "", "home": 'name = "home"\n'}
        assert load(root, files).config.name == "home"
        (root / "home").chmod(0o700)
        with nobody():
            assert load(root, {}).config.name == "etc"
        (root / "etc/conf.d").chmod(0o700)
        with nobody(), pytest.raises(ConfigError, match=r"/etc/conf\.d/\*\.toml: cannot be read: Permission denied$"):
            load(root, {})
        (root / "etc").chmod(0o700)
        with nobody(), pytest.raises(ConfigError, match=r"^\S*/etc/digend\.toml: cannot be read: Permission denied"):
            load(root, {})


@contextmanager
def nobody() -> Iterator[None]:
    """This process as another user."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
