"""`digenctl config` as a process."""

import json
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from digend.config.example import commented_defaults
from digend.config.keys import keys_of
from digend.config.loader import load_node
from digend.config.node import NodeConfig
from tests.clients.conftest import ROOT, Digenctl


def write(root: Path, **files: str) -> None:
    """`etc` is /etc/digend/digend.toml, `piece` one of conf.d, `home` the user's."""
    places = {"etc": "etc/digend.toml", "piece": "etc/conf.d/piece.toml", "home": "home/digend/digend.toml"}
    for name, text in files.items():
        path = root / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_show_says_where_everything_comes_from(digenctl: Digenctl, tmp_path: Path) -> None:
    write(
        tmp_path,
        etc='name = "box"\n[driver]\n[timing]\nlost_s = 60.0\n',
        piece="[timing]\ntorpid_s = 8.0\n",
        home="[client]\nheader = false\n",
    )
    result = digenctl("config", "show", "--origin", "--set", "log_format=json", DIGEND_LOG_LEVEL="debug")
    assert (result.returncode, result.stderr) == (0, "")
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.stdout.splitlines()}
    assert rows["name"].split() == ['"box"', f"{tmp_path}/etc/digend.toml:1"]
    assert rows["timing.lost_s"].split() == ["60.0", f"{tmp_path}/etc/digend.toml:4"]
    assert rows["timing.torpid_s"].split() == ["8.0", f"{tmp_path}/etc/conf.d/piece.toml:2"]
    assert rows["client.header"].split() == ["false", f"{tmp_path}/home/digend/digend.toml:2"]
    assert rows["log_level"].split() == ['"debug"', "DIGEND_LOG_LEVEL"]
    assert rows["log_format"].split() == ['"json"', "--set"]
    assert rows["timing.rejoin_s"].split() == ["20.0", "default"]
    assert rows["generator"].split() == ["none", "default"]


def test_show_of_one_table_as_json_and_as_units_read_it(digenctl: Digenctl, tmp_path: Path) -> None:
    write(tmp_path, etc="[client]\nreply_timeout_s = 9\n", home="[client]\nheader = false\n")
    shown = json.loads(digenctl("config", "show", "client", "--system", "--json").stdout)
    assert shown["files"] == [f"{tmp_path}/etc/digend.toml"]
    assert [(each["key"], each["value"]) for each in shown["settings"]] == [
        ("client.reply_timeout_s", 9.0),
        ("client.header", True),
    ]
    one = digenctl("config", "show", "client.header")
    assert one.stdout.splitlines()[1:] == ["client.header  false"]
    wrong = digenctl("config", "show", "clinet")
    assert (wrong.returncode, "did you mean client?" in wrong.stderr) == (2, True)


def test_a_driver_of_this_folder_is_an_origin_too(digenctl: Digenctl, tmp_path: Path) -> None:
    (tmp_path / ".digend").mkdir()
    (tmp_path / ".digend" / "driver.sock").touch()
    row = digenctl("config", "show", "address", "--origin").stdout.splitlines()[1]
    assert row.split(maxsplit=2)[2] == "a driver's socket in this folder"


def test_check_finds_all_mistakes_of_all_layers(digenctl: Digenctl, tmp_path: Path) -> None:
    write(tmp_path, etc='log_level = "loud"\n', piece="[timng]\n", home="[client]\nheader = 1\n")
    result = digenctl("config", "check", DIGEND_TIMING__LOST_S="x")
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr.splitlines() == [
        f'{tmp_path}/etc/digend.toml:1: log_level = "loud": expected one of debug, info, warning, error (From which '
        "level on)",
        f"{tmp_path}/etc/conf.d/piece.toml:1: timng: unknown key; did you mean timing?",
        f"{tmp_path}/home/digend/digend.toml:2: client.header = 1: expected true or false (Whether tables have a first "
        "line with the names of their columns)",
        'DIGEND_TIMING__LOST_S: timing.lost_s = "x": expected number > 0 (Lost after this long without a heartbeat; '
        "more than torpid_s)",
    ]
    problems = json.loads(digenctl("config", "check", "--json").stdout)["problems"]
    assert (problems[1]["where"], problems[1]["key"], problems[1]["nearest"]) == (
        f"{tmp_path}/etc/conf.d/piece.toml:1",
        "timng",
        "timing",
    )


def test_check_of_good_layers_names_them(digenctl: Digenctl, tmp_path: Path) -> None:
    assert digenctl("config", "check").stdout == "ok  no files: defaults\n"
    write(tmp_path, etc="[driver]\n")
    result = digenctl("config", "check", DIGEND_TIMNG="3")
    assert (result.returncode, result.stdout) == (0, f"ok  {tmp_path}/etc/digend.toml\n")
    assert result.stderr == "digenctl: warning: DIGEND_TIMNG is no setting; did you mean DIGEND_TIMING?\n"


def test_check_of_files_takes_jobs_and_nodes(digenctl: Digenctl, tmp_path: Path) -> None:
    job, node = ROOT / "configs/jobs/shapes-flow-grpo.toml", ROOT / "configs/nodes/laptop.toml"
    assert digenctl("config", "check", str(job), str(node)).stdout == f"ok  {job}\nok  {node}\n"
    bad = tmp_path / "job.toml"
    bad.write_text(job.read_text().replace("[model]", "[modle]"), encoding="utf-8")
    (tmp_path / "node.toml").write_text("[drivr]\n", encoding="utf-8")
    result = digenctl("config", "check", str(bad), str(tmp_path / "node.toml"), str(tmp_path / "none.toml"))
    assert result.returncode == 78
    for expected in ("job.toml:", "did you mean model?", "node.toml:1: drivr", "did you mean driver?", "none.toml: no"):
        assert expected in result.stderr


@pytest.mark.parametrize("kind", ["job", "node"])
def test_schemas_are_those_of_the_checkout(digenctl: Digenctl, kind: str) -> None:
    printed = digenctl("config", "schema", kind).stdout
    assert printed == (ROOT / "configs" / "schema" / f"{kind}.json").read_text(encoding="utf-8")
    schema = json.loads(printed)
    assert schema["additionalProperties"] is False
    assert '"null"' not in printed
    tables = [schema, *schema["$defs"].values()]
    fields = [field for table in tables for field in table.get("properties", {}).values()]
    assert all("description" in field or "$ref" in {*field, *field.get("items", ())} for field in fields)


def test_the_example_is_every_setting_with_its_default(digenctl: Digenctl, tmp_path: Path) -> None:
    to_fill_in = {key.path.rpartition(".")[0] for key in keys_of(NodeConfig).values() if key.required}
    printed = digenctl("config", "example").stdout
    assert printed == commented_defaults() == (ROOT / "configs" / "digend.toml").read_text(encoding="utf-8")
    path = tmp_path / "node.toml"
    path.write_text(printed, encoding="utf-8")
    assert load_node(path) == load_node_of(tmp_path, "")
    path.write_text("\n".join(without(switched_on(printed), to_fill_in)), encoding="utf-8")
    tables = [key.path for key in keys_of(NodeConfig).values() if key.type == "table" and key.path not in to_fill_in]
    assert {"driver", "generator", "trainer", "reward", "timing", "client"} <= {*tables}
    assert load_node(path) == load_node_of(tmp_path, "".join(f"[{table}]\n" for table in tables))
    assert {*tomllib.loads(path.read_text(encoding="utf-8"))} >= {*tables}


def without(lines: Iterable[str], tables: Collection[str]) -> Iterator[str]:
    """Lines of TOML less those of some tables."""
    table = ""
    for line in lines:
        table = line.strip("[]") if line.startswith("[") else table
        if table not in tables:
            yield line


def load_node_of(folder: Path, text: str) -> NodeConfig:
    path = folder / "other.toml"
    path.write_text(text, encoding="utf-8")
    return load_node(path)


def switched_on(text: str) -> list[str]:
    """Without the `#` of settings."""
    return [line[1:] if line[:1] == "#" and line[1:2] not in (" ", ":", "") else line for line in text.splitlines()]


def test_a_broken_table_of_others_does_not_keep_digenctl_from_asking(digenctl: Digenctl, tmp_path: Path) -> None:
    write(tmp_path, etc="[generator]\nslots = -1\n")
    assert digenctl("status").returncode == 69
    write(tmp_path, etc="[client]\nheader = 1\n")
    assert digenctl("status").returncode == 78
