"""Watching and waiting over time: Ctrl-C, a terminal, a driver that is killed and comes back."""

import os
import pty
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from clients.api import Digend
from digend.net.client import DriverUnreachable, TimedOut
from digend.wire.records import Record
from tests.clients.conftest import ROOT
from tests.clients.fake_driver import Canned, FakeDriver, job_view


def started(args: list[str], cwd: Path, stdout: int) -> "subprocess.Popen[str]":
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "TERM": "xterm"}
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "clients.main", *args],
        cwd=cwd,
        env=environ,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("driver")
def test_ctrl_c_leaves_the_job_running_and_says_so(tmp_path: Path, canned: Canned, story: list[Record]) -> None:
    canned.records["shapes-002"] = story[:2]
    process = started(["watch"], tmp_path, subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert process.stdout.readline().startswith("evaluation before")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "job shapes-002 goes on" in errors
    assert "digenctl watch shapes-002" in errors
    assert canned.jobs["shapes-002"].state == "running"


@pytest.mark.usefixtures("driver")
def test_a_terminal_gets_a_bar(tmp_path: Path, canned: Canned, story: list[Record]) -> None:
    canned.jobs["done-001"] = replace(job_view("done-001", "completed", submitted_ns=30), num_global_steps=1)
    kept = [record for record in story if record.body.kind != "restart"]
    canned.records["done-001"] = [replace(record, seq=seq) for seq, record in enumerate(kept)]
    ours, theirs = pty.openpty()
    process = started(["watch"], tmp_path, theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux: how the end of a terminal reads once its last holder has gone
    finally:
        os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    text = shown.decode()
    for expected in (
        "done-001",
        "1/1",
        "reward 0.612",
        "a step 5.9 s",
        "evaluation accuracy 0.736",
        "warning: group dropped",
        "completed",
    ):
        assert expected in text
    assert "global step 1, reward" not in text


def test_following_outlasts_a_driver_that_is_killed(tmp_path: Path, canned: Canned, story: list[Record]) -> None:
    canned.records["shapes-002"] = story[:3]
    seen: list[int] = []
    first_part = threading.Event()

    def follow() -> None:
        with Digend(f"ipc://{tmp_path}/driver.sock", timeout_s=2.0) as driver:
            for record in driver.follow("shapes-002"):
                seen.append(record.seq)
                if len(seen) == 3:
                    first_part.set()

    follower = threading.Thread(target=follow)
    with FakeDriver(tmp_path, canned):
        follower.start()
        assert first_part.wait(60)
    canned.records["shapes-002"] = story
    canned.jobs["shapes-002"] = job_view("shapes-002", "completed")
    with FakeDriver(tmp_path, canned):
        follower.join(60)
    assert seen == list(range(len(story)))


def test_following_gives_up_on_a_driver_that_stays_away(
    tmp_path: Path, canned: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.api.ABSENCE_S", 0.2)
    with Digend(f"ipc://{tmp_path}/driver.sock", timeout_s=2.0) as driver:
        with FakeDriver(tmp_path, canned):
            assert driver.job_id() == "shapes-002"
        with pytest.raises((DriverUnreachable, TimedOut)):  # by whether ZeroMQ saw it go before it was asked
            driver.wait("shapes-002")
