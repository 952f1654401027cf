"""Disks without room: nothing that is there is lost, what runs is held and goes on when there is room again.

A cluster of its own, whose runs and state lie on small file systems; its jobs are colocated and need no diffusers.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from digend.engines.checkpoints import read_checkpoint
from digend.exitcodes import ExitCode
from tests.e2e.cluster import Cluster, running, short_folder, wait_until
from tests.e2e.run import assert_counted_once
from tests.faults.leaky_package import install, write_job

RUNS_MIB, STATE_MIB = 8, 96
ROLES = {"driver": {}, "recorder": True, "trainer": {"device": "cpu"}}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = short_folder()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, size in (("runs", RUNS_MIB), ("state", STATE_MIB)):
            (folder / name).mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "none", str(folder / name)]
            if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
                pytest.skip("a file system of its own can be mounted by root only")
            stack.callback(subprocess.run, ["umount", "-l", str(folder / name)], check=True)
        package = install(tmp_path_factory.mktemp("site-packages"))
        yield stack.enter_context(running(roles=ROLES, packages=(package,), folder=folder))


def submit(small: Cluster, job: str, *overrides: str, code: ExitCode = ExitCode.OK) -> str:
    path = write_job(small.folder, small.folder)
    given = ("model.options.leaks=false", "schedule.generators=[]", "eval.enabled=false", *overrides)
    flags = [word for override in given for word in ("--set", override)]
    return small.ctl("submit", str(path), "--id", job, *flags, code=code).stderr


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Takes the room of a file system but for `leave_bytes`; the file to remove. Others may be writing there."""
    ballast, stat = folder / "ballast", os.statvfs(folder)
    wanted = stat.f_bavail * stat.f_frsize - leave_bytes
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while leave_bytes == 0 or file.tell() < wanted:
            file.write(bytes(4096))
    return ballast


def said(small: Cluster) -> str:
    return small.ctl("status", code=ExitCode.DEGRADED).stdout


def test_a_checkpoint_that_finds_no_room_holds_the_job(small: Cluster) -> None:
    submit(small, "held", "training.global_steps=100", "checkpoint.every=5", "checkpoint.keep=2")
    small.reached("held", 10)
    ballast = fill(small.folder / "runs")
    small.sees("held", lambda view: view.state == "held", "the job is held")
    assert "No space left" in said(small)
    step = small.driver.job("held").job.global_step
    checkpoints = sorted((small.folder / "runs" / "held" / "checkpoints").glob("step-*"))
    assert [read_checkpoint(folder).state.global_step for folder in checkpoints][-1] == step - 5
    assert not list((small.folder / "runs" / "held" / "checkpoints").glob(".*")), "an unfinished one was left behind"
    ballast.unlink()
    run = small.completed("held")
    assert_counted_once(run, 100)
    assert run.counters["failed_tasks"] >= 1
    assert run.counters["restarts"] == 0


def test_a_recorder_that_finds_no_room_tries_again_and_the_job_goes_on(small: Cluster) -> None:
    submit(small, "unrecorded", "training.global_steps=60", "checkpoint.every=0")
    small.reached("unrecorded", 3)
    ballast = fill(small.folder / "runs")
    small.reached("unrecorded", 60)
    wait_until(lambda: "cannot write records, will try again" in small.log_tail(), "the recorder says so")
    ballast.unlink()
    assert_counted_once(small.completed("unrecorded"), 60)


def test_nothing_new_is_taken_while_the_journals_disk_is_almost_full(small: Cluster) -> None:
    submit(small, "low", "training.global_steps=100", "checkpoint.every=0")
    small.reached("low", 3)
    ballast = fill(small.folder / "state", leave_bytes=16 * 1024 * 1024)
    wait_until(lambda: bool(small.driver.status().problems), "the driver sees it")
    assert "almost full" in said(small)
    assert "almost full" in submit(small, "refused", code=ExitCode.DEGRADED)
    ballast.unlink()
    wait_until(lambda: not small.driver.status().problems, "the driver sees that there is room")
    assert_counted_once(small.completed("low"), 100)
    submit(small, "taken", "training.global_steps=1")
    small.completed("taken")
