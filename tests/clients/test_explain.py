"""`digenctl explain`, asked of a driver and of a run folder: what people see, what programs see, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemons.recorder.lines import encode
from digend.wire.records import IdleRecord, Record
from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import Canned
from tests.clients.test_help import HEAVY, imported_by
from tests.telemetry.test_explain import ran

COLUMNS = ["ID", "AT", "PENDING", "UQ", "ANSWER", "END", "WITHOUT", "THEN", "WHY"]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return ran("planned", num_rewards=1, steps=3).records["j1"]


@pytest.fixture
def run_folder(tmp_path: Path, records: list[Record]) -> str:
    """A run whose last line was torn off by a crash."""
    folder = tmp_path / "runs" / "j1"
    folder.mkdir(parents=True)
    lines = "".join(encode(record) + "\n" for record in records)
    (folder / "events.jsonl").write_text(lines + '{"seq": 9')
    return "runs/j1"


def document(text: str) -> Any:
    parsed = json.loads(text)
    assert parsed["schema_version"] == 1
    return parsed


def test_a_job(digenctl: Digenctl, run_folder: str) -> None:
    result = digenctl("explain", run_folder)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("job        j1, ")
    assert "(planned)" in lines[1]
    assert "never out of budget" in lines[2]
    assert lines[3].startswith("predicted  ends of 3 global steps: median error 0.000 s")
    assert "shorten    generation: more or faster generators" in result.stdout
    table = next(index for index, line in enumerate(lines) if line.startswith("ID "))
    assert lines[table].split() == COLUMNS
    assert lines[table - 1].startswith("global step 3, its last update ended at ")
    assert "TAG of micro-batch" in lines[table + 1]
    assert "TAG from here on end the step" in lines[table + 1]


def test_a_job_for_a_program(digenctl: Digenctl, run_folder: str) -> None:
    parsed = document(digenctl("explain", run_folder, "--json").stdout)
    assert (parsed["job"], parsed["strategy"], parsed["global_step"]) == ("j1", "planned", 3)
    assert parsed["answers"]["update"] == 36
    assert {"worker", "cause", "seconds", "share", "count", "remedy"} == parsed["bubbles"][0].keys()
    assert parsed["decisions"][0]["then"]["what"] == "assist"
    first = document(digenctl("explain", run_folder, "--global-step", "1", "--json").stdout)
    assert {each["global_step"] for each in first["decisions"]} == {1}


def test_a_bubble(digenctl: Digenctl, run_folder: str, records: list[Record]) -> None:
    waits = [each for each in records if isinstance(each.body, IdleRecord) and each.body.cause == "reward"]
    number = str(waits[0].seq)
    result = digenctl("explain", "bubble", number, "--job", run_folder)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"bubble       {number} of j1: n/trainer/0 from ")
    assert lines[1].startswith("waits for    reward, ")
    assert lines[-1].startswith("shorten      faster rewards")
    parsed = document(digenctl("explain", "bubble", number, "--job", run_folder, "--json").stdout)
    assert parsed["bubble"]["cause"] == "reward"
    named = f"n/trainer/0@{parsed['bubble']['start_s']:.3f}"
    assert document(digenctl("explain", "bubble", named, "--job", run_folder, "--json").stdout) == parsed


@pytest.mark.usefixtures("driver")
def test_of_a_driver(digenctl: Digenctl, canned: Canned, run_folder: str, records: list[Record]) -> None:
    """It hands out records by threes; the newest job is meant where none is named."""
    canned.records["shapes-002"] = records
    told = digenctl("explain", run_folder).stdout
    assert digenctl("explain").stdout == digenctl("explain", "shapes").stdout == told != ""


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("runs/none",), 5, "no run at runs/none"),
        (("runs/j1", "--global-step", "9"), 5, "no decision of global step 9"),
        (("bubble", "0", "--job", "runs/j1"), 5, "no bubble '0' in job j1"),
        (("bubble",), 2, "which one?"),
        (("bubble", "1", "--global-step", "2"), 2, "--global-step is for a job"),
        (("a", "b"), 2, "one job"),
        (("shapes",), 69, "no driver"),
    ],
)
@pytest.mark.usefixtures("run_folder")
def test_what_cannot_be_explained(digenctl: Digenctl, args: tuple[str, ...], code: int, message: str) -> None:
    result = digenctl("explain", *args, "--json")
    assert result.returncode == code
    assert message in document(result.stdout)["error"]["message"]


@pytest.mark.usefixtures("driver")
def test_an_unknown_job(digenctl: Digenctl) -> None:
    assert digenctl("explain", "nobody").returncode == 5


def test_lines_of_another_version_are_named(digenctl: Digenctl, run_folder: str, tmp_path: Path) -> None:
    (tmp_path / run_folder / "events.jsonl").write_text('{"seq": 0, "at_ns": 0, "job": "j1", "kind": "dance"}\n')
    result = digenctl("explain", run_folder)
    assert result.returncode == 76
    assert "events.jsonl, line 1: " in result.stderr


def test_no_model_is_imported(tmp_path: Path, run_folder: str) -> None:
    assert not imported_by("explain", str(tmp_path / run_folder)) & {*HEAVY, "numpy", "digend.config.job", "rich"}
