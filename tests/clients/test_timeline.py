"""`digenctl timeline`, asked of a driver and of a run folder: the chart, the seconds, the trace, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemons.recorder.lines import encode
from digend.wire.records import IdleRecord, Record, StepRecord
from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import Canned
from tests.clients.test_help import HEAVY, imported_by
from tests.telemetry.test_explain import ran
from tests.telemetry.trace_format import check_trace


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return ran("planned", num_rewards=1, steps=3).records["j1"]


@pytest.fixture
def run_folder(tmp_path: Path, records: list[Record]) -> str:
    folder = tmp_path / "runs" / "j1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(encode(record) + "\n" for record in records))
    return "runs/j1"


def document(text: str) -> Any:
    parsed = json.loads(text)
    assert parsed["schema_version"] == 1
    return parsed


def test_the_chart(digenctl: Digenctl, run_folder: str) -> None:
    result = digenctl("timeline", run_folder, COLUMNS="90")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("job j1, all of it: ")
    rows = [line for line in lines if line.startswith("n/")]
    assert len(rows) == 2 * 3, "a row of the chart and one of the table for each worker"
    assert all(len(line) <= 90 for line in lines)
    assert "▓ TAG" in result.stdout
    staging = [line for line in lines if line.startswith("  staging")]
    assert staging
    assert all("↓" in line for line in staging)
    assert "↓ stage weights" in result.stdout
    assert "1 bubble: " in result.stdout
    assert "WORKER" in result.stdout


def test_a_global_step_for_a_program(digenctl: Digenctl, run_folder: str, records: list[Record]) -> None:
    step = next(r.body for r in records if isinstance(r.body, StepRecord) and r.body.global_step == 2)
    parsed = document(digenctl("timeline", run_folder, "--global-step", "2", "--json").stdout)
    assert parsed["window"] == "global step 2"
    assert parsed["seconds"] == pytest.approx(step.seconds)
    for worker in parsed["workers"]:
        assert sum(worker["kinds"].values()) <= parsed["seconds"] + 1e-6
    first = min(each["from"] for each in parsed["spans"])
    last = document(digenctl("timeline", run_folder, "--last", "--json").stdout)
    assert last["window"] == "global step 3"
    assert min(each["from"] for each in last["spans"]) > first


def test_a_trace(digenctl: Digenctl, run_folder: str, tmp_path: Path, records: list[Record]) -> None:
    result = digenctl("timeline", run_folder, "--perfetto", "all.json")
    assert result.returncode == 0, result.stderr
    assert "ui.perfetto.dev" in result.stdout
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    check_trace(events)
    num_bubbles = sum(isinstance(record.body, IdleRecord) and record.body.bubble for record in records)
    assert sum(event.get("cat") == "bubble" for event in events) == num_bubbles
    told = document(digenctl("timeline", run_folder, "--last", "--perfetto", "last.json", "--json").stdout)
    part = json.loads((tmp_path / "last.json").read_text())["traceEvents"]
    check_trace(part)
    assert [event["name"] for event in part if event.get("cat") == "step" and event["ph"] == "X"] == ["global step 3"]
    assert told["file"] == "last.json"


@pytest.mark.usefixtures("driver")
def test_the_newest_job_of_a_driver(digenctl: Digenctl, canned: Canned, records: list[Record], tmp_path: Path) -> None:
    canned.records["shapes-002"] = records[:40]
    assert "job j1, all of it" in digenctl("timeline").stdout
    canned.records["shapes-002"] = records[:1]
    assert "has done nothing yet" in digenctl("timeline", "sha").stderr
    assert digenctl("timeline", "--last").returncode == 5
    assert digenctl("timeline", "nobody").returncode == 5


def test_what_is_wrong_is_named(digenctl: Digenctl, run_folder: str) -> None:
    missing = digenctl("timeline", run_folder, "--global-step", "9")
    assert (missing.returncode, "closed are 1 to 3" in missing.stderr) == (5, True)
    assert digenctl("timeline", run_folder, "--last", "--global-step", "1").returncode == 2
    assert digenctl("timeline", run_folder, "--perfetto", "no/such/t.json").returncode == 2
    assert digenctl("timeline", "runs/none").returncode == 5
    assert digenctl("timeline").returncode == 69


def test_help_and_a_folder_import_what_they_need(run_folder: str, tmp_path: Path) -> None:
    assert not imported_by("timeline", "--help") & {*HEAVY, "rich", "numpy", "digend.telemetry.timeline"}
    assert not imported_by("timeline", str(tmp_path / run_folder)) & {*HEAVY, "rich", "numpy", "jinja2"}
