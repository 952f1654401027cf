"""Workers as units: new instances, a job from submit to report, its fields in the journal, drain and return."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import wait_until
from tests.lab.host import Host
from tests.lab.jobs import submit, view

TABLES: dict[str, Any] = {
    "driver": {},
    "recorder": True,
    "trainer": {"device": "cpu"},
    "generator": {"slots": 1, "devices": ["cpu"]},
}
TRAINER, GENERATOR = "digend-trainer@0", "digend-generator@0"


@pytest.fixture(scope="module")
def workers(host: Host) -> Host:
    """The machine with a trainer and a generator, which its settings did not name when it was booted."""
    host.configure(**TABLES)
    host.systemctl("daemon-reload")
    host.systemctl("start", "digend")
    return host


def states(host: Host) -> dict[str, str]:
    return {node["name"]: node["state"] for node in host.digenctl("nodes")["nodes"]}


def test_new_instances_have_joined_when_start_returns(workers: Host) -> None:
    assert states(workers) == dict.fromkeys(("lab/recorder/0", "lab/trainer/0", "lab/generator/0"), "idle")
    assert [workers.show(unit, "StatusText") for unit in (TRAINER, GENERATOR)] == ["idle", "idle"]


def test_a_job_to_its_end_and_its_lines_in_the_journal(workers: Host, tmp_path: Path) -> None:
    workers.configure(**TABLES, log_level="debug")
    workers.systemctl("reload", "digend")
    submit(workers, tmp_path, "first")
    workers.run("/opt/digend/bin/digenctl", "wait", "first")
    report = "/var/lib/digend/runs/first/report.html"
    wait_until(lambda: workers.execute("test", "-s", report).returncode == 0, "the report is written")
    assert workers.run("stat", "-c", "%U %a", report).split() == ["digend", "640"]
    updates = workers.journal("DIGEND_JOB=first", "DIGEND_TASK=update", "DIGEND_POLICY_VERSION=3")
    assert {entry["SYSLOG_IDENTIFIER"] for entry in updates} == {"digend-trainer-0", "digend-driver"}
    assert {entry["DIGEND_MICRO_BATCH"] for entry in updates} == {"0", "1"}
    told = workers.journal("DIGEND_JOB=first", "_SYSTEMD_UNIT=digend-driver.service")
    steps = [entry for entry in told if entry["MESSAGE"].startswith("global step closed")]
    assert [entry["DIGEND_POLICY_VERSION"] for entry in steps] == ["1", "2", "3", "4"]
    workers.configure(**TABLES)
    workers.systemctl("reload", "digend")


def test_stop_drains_and_a_start_goes_on(workers: Host, tmp_path: Path) -> None:
    submit(workers, tmp_path, "long", "training.global_steps=400", "eval.enabled=false")
    wait_until(lambda: view(workers, "long")["global_step"] >= 2, "the job is on its way")
    workers.systemctl("stop", "digend", "digend-*")
    units = [GENERATOR, TRAINER, "digend-recorder", "digend-driver"]
    assert {workers.show(unit, "ExecMainStatus") for unit in units} == {"42"}
    assert {workers.show(unit, "Result") for unit in units} == {"success"}
    ends = [int(workers.show(unit, "InactiveEnterTimestampMonotonic")) for unit in units]
    assert max(ends[:2]) <= ends[2] <= ends[3], "workers, recorder, driver"
    workers.systemctl("start", "digend")
    reached = view(workers, "long")["global_step"]
    wait_until(lambda: view(workers, "long")["global_step"] > reached, "the job goes on")
    workers.run("/opt/digend/bin/digenctl", "cancel", "long")
