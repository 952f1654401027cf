"""`digenctl doctor`: each thing that can be wrong is found, and what is well is said too."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clients.box_checks import check_box, stale_checkpoints
from clients.cluster_checks import check_clocks, check_disks, check_gpus, check_job, check_versions, check_workers
from clients.this_box import ThisBox
from digend import __version__
from digend.findings import Finding, exit_code
from digend.wire.devices import THERMAL, DeviceState
from digend.wire.protocol import PROTOCOL
from digend.wire.views import JobDetail, StatusView, VersionView
from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import ELSEWHERE, Canned, job_view, node_view

NODES = (node_view("a/generator/0"), node_view("b/trainer/0"), node_view("b/recorder/0"))
STATUS = StatusView(
    epoch=1,
    uptime_s=1.0,
    nodes=NODES,
    sq_depth=0,
    sq_oldest_s=None,
    uq_depth=0,
    uq_oldest_s=None,
    job=None,
    queued=0,
    bubble_share=None,
)
SAME = VersionView(driver=__version__, protocol=PROTOCOL, python="3.11")


def of(findings: list[Finding], level: str) -> list[str]:
    return [f"{finding.what}: {finding.message}" for finding in findings if finding.level == level]


def test_versions_that_differ_are_named_with_their_nodes() -> None:
    assert of(list(check_versions(SAME, NODES)), "warning") == []
    other = replace(NODES[1], versions={"torch": "2.10"})
    found = list(check_versions(replace(SAME, driver="9.9"), (NODES[0], other)))
    assert of(found, "error")[0].startswith(f"driver: digend 9.9, protocol {PROTOCOL}; digenctl ")
    assert of(found, "warning") == [
        "torch: 2.10 on b/trainer/0; 2.9 on a/generator/0: where these draw or train, numbers differ"
    ]


def test_clocks_that_are_apart_are_named() -> None:
    late = replace(NODES[0], clock_ahead_s=-95.0)
    fine = replace(NODES[1], clock_ahead_s=0.2)
    place = replace(ELSEWHERE, wall_ns=10**12, now_ns=10**12 + 60 * 10**9)
    found = list(check_clocks(place, 10**12 + 5 * 10**9, (late, fine)))
    assert of(found, "warning") == [
        "clock of this box: 5.0 s ahead of the driver's: set up NTP",
        "clock of a/generator/0: 1 min behind the driver's: set up NTP",
        "driver's time: 1 min ahead of its box's clock, which was set back",
    ]
    assert of(list(check_clocks(ELSEWHERE, 1, (fine,))), "warning") == []


def test_disks_workers_and_gpus() -> None:
    full = replace(ELSEWHERE, free_bytes={"journal": 2**20, "runs": 2 * 2**30, "state": 2**40})
    assert [finding.level for finding in check_disks(full)] == ["error", "warning", "ok"]
    torpid = replace(NODES[0], state="torpid", heartbeat_age_s=9.0)
    found = list(check_workers(replace(STATUS, problems=("disk full",)), (torpid,)))
    assert of(found, "warning") == [
        "problem: disk full",
        "trainer: none has joined: no job can run",
        "recorder: none has joined: nothing is written to runs until one is back",
        "a/generator/0: torpid, last heard 9.0 s ago: digenctl story a/generator/0",
    ]
    assert of(list(check_workers(STATUS, NODES)), "ok") == ["workers: 2 joined, none is torpid or lost"]
    states = (
        DeviceState(device="cuda:0", status="lost", age_s=0.0),
        DeviceState(device="cuda:0", status="stale", age_s=40.0),
        DeviceState(device="cuda:0", status="ok", age_s=0.0, throttle=(THERMAL,)),
        DeviceState(device="cuda:0", status="ok", age_s=0.0),
    )
    gpus = list(check_gpus([replace(NODES[0], device_state=state) for state in states]))
    assert [finding.level for finding in gpus] == ["error", "warning", "warning", "ok"]


def test_a_checkpoint_that_should_be_newer() -> None:
    detail = JobDetail(
        job=job_view("j", "running"),
        seconds=1.0,
        evaluations=(),
        last_step={},
        stage_seconds={},
        counters={},
        checkpoint="/r/j/checkpoints/step-000002",
        pipeline=None,
        num_records=1,
    )
    (found,) = check_job(detail, "[checkpoint]\nevery = 2\n")
    assert found.level == "warning"
    assert found.message == "newest at global step 2, the job is at 7, one is due every 2"
    assert [finding.level for finding in check_job(detail, "[checkpoint]\nevery = 3\n")] == ["ok"]
    held = replace(detail, job=job_view("j", "held", reason="no room"))
    assert [finding.level for finding in check_job(held, "")] == ["error"]


def test_half_written_checkpoints_are_found(tmp_path: Path) -> None:
    old, new = (tmp_path / "j" / "checkpoints" / f".unfinished-step-00000{step}" for step in (2, 4))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert list(stale_checkpoints(tmp_path, time.time())) == [old]
    box = ThisBox(name="b", state=tmp_path, runs=tmp_path, journal=tmp_path / "x", places=None)
    assert [finding.what for finding in check_box(box) if finding.level == "warning"] == ["stale checkpoint"]


def test_levels_and_codes() -> None:
    assert exit_code([Finding("ok", "a", "")]) == 0
    assert exit_code([Finding("ok", "a", ""), Finding("warning", "b", "")]) == 3
    assert exit_code([Finding("error", "a", ""), Finding("warning", "b", "")]) == 78


@pytest.mark.usefixtures("driver")
def test_the_verb(digenctl: Digenctl, canned: Canned) -> None:
    canned.place = replace(ELSEWHERE, wall_ns=time.time_ns(), now_ns=time.time_ns())
    result = digenctl("doctor")
    assert result.returncode == 78  # the fake driver is of version 0.0.0
    assert f"error   driver: digend 0.0.0, protocol {PROTOCOL}; digenctl" in result.stdout
    assert "warning recorder: none has joined" in result.stdout
    document = json.loads(digenctl("doctor", "--json").stdout)
    assert {finding["level"] for finding in document["findings"]} == {"ok", "warning", "error"}


def test_without_a_driver_it_says_what_it_can(digenctl: Digenctl, tmp_path: Path) -> None:
    result = digenctl("doctor")
    assert result.returncode == 69
    assert "ok      digenctl: " in result.stdout
    assert "there is no such socket" in result.stdout
    broken = tmp_path / "node.toml"
    broken.write_text("nmae = 'x'\n")
    bad = digenctl("doctor", "--node", str(broken))
    assert bad.returncode == 78
    assert "did you mean name?" in bad.stdout
