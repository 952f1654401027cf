"""Every verb where nobody is there: exit code 69, one message, and what to do next."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from digend import __version__
from digend.wire.protocol import PROTOCOL
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, job_view

JOB = str(ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml")
VERBS = [
    ("submit", JOB),
    ("submit", JOB, "--watch"),
    ("jobs",),
    ("status",),
    ("watch",),
    ("watch", "x"),
    ("queue", "sq"),
    ("nodes",),
    ("show", "job"),
    ("show", "node", "x"),
    ("cancel", "x"),
    ("wait",),
    ("story",),
    ("report",),
    ("samples",),
    ("compare", "x", "y"),
    ("version",),
]


@pytest.mark.parametrize("args", VERBS, ids=" ".join)
def test_nobody_there(digenctl: Digenctl, args: tuple[str, ...]) -> None:
    result = digenctl(*args, "--reply-timeout", "0.2", "--json")
    assert result.returncode == 69
    error = json.loads(result.stdout)
    assert error["schema_version"] == 1
    assert error["error"]["code"] == 69
    assert error["error"]["message"].startswith("no driver")
    assert result.stderr.startswith("digenctl: no driver")
    assert "there is no such socket" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", ["report", "samples", "timeline", "explain"])
def test_what_looks_back_says_that_a_folder_needs_no_driver(digenctl: Digenctl, verb: str) -> None:
    result = digenctl(verb)
    assert result.returncode == 69
    assert "such as runs/ID, in place of a job needs none" in result.stderr


def test_version_says_its_own_where_nobody_is_there(digenctl: Digenctl) -> None:
    assert digenctl("version").stdout.startswith(f"digenctl  {__version__}, ")
    document = json.loads(digenctl("version", "--json").stdout)
    assert (document["client"]["digenctl"], document["error"]["code"]) == (__version__, 69)


def test_the_message_says_what_to_do(digenctl: Digenctl) -> None:
    result = digenctl("status")
    assert result.stdout == ""
    assert "there is no such socket" in result.stderr
    assert "digend up NODE.toml" in result.stderr


def test_a_driver_of_another_version_has_a_code_of_its_own(digenctl: Digenctl, tmp_path: Path) -> None:
    (tmp_path / ".digend").mkdir()
    socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(f"ipc://{tmp_path}/.digend/driver.sock")

    def answer() -> None:
        peer, *_ = socket.recv_multipart()
        socket.send_multipart([peer, msgpack.packb([PROTOCOL + 1, "JobList", {}])])

    thread = threading.Thread(target=answer)
    thread.start()
    result = digenctl("jobs", "--json")
    thread.join()
    socket.close(0)
    assert result.returncode == json.loads(result.stdout)["error"]["code"] == 76
    assert f"the peer speaks protocol {PROTOCOL + 1}, this is protocol {PROTOCOL}" in result.stderr


@pytest.mark.usefixtures("driver")
def test_what_others_wrote_moves_no_cursor(digenctl: Digenctl, canned: Canned) -> None:
    canned.jobs["other-001"] = replace(canned.jobs["other-001"], reason="reward x raised \x1b[2J\x07\r\nOops")
    result = digenctl("jobs")
    assert "raised \\x1b[2J\\x07\\x0d\\x0aOops" in result.stdout
    assert "\x1b" not in result.stdout
    assert json.loads(digenctl("jobs", "--json").stdout)["jobs"][0]["reason"].endswith("\x1b[2J\x07\r\nOops")


@pytest.mark.usefixtures("driver")
def test_older_jobs_are_hinted_at_and_found(digenctl: Digenctl, canned: Canned) -> None:
    canned.jobs = {f"job-{n:03d}": job_view(f"job-{n:03d}", "completed", submitted_ns=n) for n in range(7)}
    canned.page = 3
    result = digenctl("jobs", "--no-header", "-o", "id")
    assert result.stdout.split() == ["job-004", "job-005", "job-006"]
    assert "and 4 earlier jobs: digenctl jobs --all" in result.stderr
    assert len(digenctl("jobs", "--all", "--no-header", "-o", "id").stdout.split()) == 7
    assert digenctl("show", "job", "job-000").returncode == 0
