"""`digenctl logs`: files of `digend up` on this box, systemd's journal, boxes elsewhere."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from logging import makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from clients.log_files import Follower, lines_of
from clients.log_lines import entries, since_of
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, node_view

NOW = datetime(2026, 7, 31, 12, 0, tzinfo=UTC)

DRIVER = """\
2026-07-31 11:58:00Z [info     ] driver started                 address=ipc:///x epoch=1
2026-07-31 11:59:00Z [info     ] job running                    job=shapes-002
2026-07-31 11:59:30Z [warning  ] task failed                    error='a b' job=other-001 worker=box/generator/0
"""
TRAINER = """\
2026-07-31 11:58:30Z [info     ] joined                         epoch=1 session=s1.2
2026-07-31 11:59:10Z [error    ] update failed                  job=shapes-002 micro_batch=3
Traceback (most recent call last):
ValueError: no
"""


@pytest.fixture
def node_file(tmp_path: Path) -> str:
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "driver.log").write_text(DRIVER)
    (logs / "trainer-0.log").write_text(TRAINER)
    (tmp_path / "node.toml").write_text(f'name = "box"\nstate = "{tmp_path}/state"\n[driver]\n')
    return str(tmp_path / "node.toml")


def test_all_processes_in_order_of_time(digenctl: Digenctl, node_file: str) -> None:
    result = digenctl("logs", "--node", node_file)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(" | ")[0].strip() for line in lines] == [
        "box/driver",
        "box/trainer/0",
        "box/driver",
        "box/trainer/0",
        "box/trainer/0",
        "box/trainer/0",
        "box/driver",
    ]
    assert digenctl("logs", "--node", node_file, "-n", "1").stdout.startswith(
        "box/driver           | 2026-07-31 11:59:30Z"
    )


@pytest.mark.parametrize("name", ["trainer", "trainer-0", "box/trainer/0", "box/t"])
def test_one_worker(digenctl: Digenctl, node_file: str, name: str) -> None:
    result = digenctl("logs", name, "--node", node_file)
    assert result.stdout == TRAINER


def test_one_job_by_its_level_and_time(digenctl: Digenctl, node_file: str) -> None:
    about = digenctl("logs", "shapes-002", "--node", node_file).stdout
    assert ("job running" in about, "update failed" in about, "ValueError" in about) == (True, True, True)
    assert "joined" not in about
    assert "task failed" not in about
    assert "job running" not in digenctl("logs", "shapes-002", "--level", "warning", "--node", node_file).stdout
    late = digenctl("logs", "--since", "2026-07-31 11:59:20", "--node", node_file).stdout
    assert late.splitlines()[0].endswith("worker=box/generator/0")
    documents = [json.loads(line) for line in digenctl("logs", "--json", "--node", node_file).stdout.splitlines()]
    failed = next(each for each in documents if each["level"] == "error")
    assert (failed["process"], failed["job"], failed["micro_batch"]) == ("box/trainer/0", "shapes-002", "3")
    assert failed["lines"][-1] == "ValueError: no"


@pytest.mark.usefixtures("driver")
def test_logs_of_other_boxes_are_there(digenctl: Digenctl, node_file: str, canned: Canned, tmp_path: Path) -> None:
    canned.nodes = (replace(node_view("far/generator/0"), host="gpu-box"), node_view("box/trainer/0"))
    address = f"ipc://{tmp_path}/.digend/driver.sock"
    Path(node_file).write_text(Path(node_file).read_text().replace('"box"\n', f'"box"\naddress = "{address}"\n', 1))
    result = digenctl("logs", "far/g", "--node", node_file)
    assert result.returncode == 5
    assert "logs of far/generator/0 are on its own box, gpu-box" in result.stderr
    assert "those of other boxes are there: gpu-box" in digenctl("logs", "sha", "--node", node_file).stderr
    wrong = digenctl("logs", "shopes", "--node", node_file)
    assert wrong.returncode == 5
    assert "did you mean shapes-002?" in wrong.stderr


@pytest.mark.usefixtures("driver")
def test_a_box_without_logs_says_where_they_are(digenctl: Digenctl) -> None:
    result = digenctl("logs", PATH="/nowhere")
    assert result.returncode == 5
    assert "the driver's are on elsewhere, in /nowhere/state/logs" in result.stderr
    assert digenctl("logs", "--since", "yesterday").returncode == 2


def test_without_a_driver_the_node_file_is_asked_for(digenctl: Digenctl) -> None:
    result = digenctl("logs", PATH="/nowhere")
    assert result.returncode == 5
    assert "name its node file with --node" in result.stderr


def journalctl(folder: Path) -> str:
    """A program of that name that says how it was called. Returns a PATH with it."""
    folder.mkdir()
    script = folder / "journalctl"
    script.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), ["--unit", "digend*", "--priority", "debug", "--output", "short-iso", "--lines", "200", "--no-pager"]),
        (("sha", "--level", "error"), ["DIGEND_JOB=shapes-002", "--priority", "err"]),
        (("box/g", "-f"), ["DIGEND_PROCESS=box/generator/0", "--follow"]),
        (("--since", "2026-07-31 12:00", "--json"), ["--since", "2026-07-31 12:00:00 UTC", "--output", "json"]),
    ],
)
def test_under_systemd_journalctl_is_asked_by_native_fields(
    tmp_path: Path, args: tuple[str, ...], expected: list[str]
) -> None:
    code = (
        "import sys, pathlib\nfrom clients import logs\n"
        f"logs.SYSTEMD = pathlib.Path({str(tmp_path)!r})\nfrom clients.main import main\nmain(sys.argv[1:])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "logs", *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": journalctl(tmp_path / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    said = result.stdout.splitlines()
    assert [word for word in said if word in expected] == sorted(expected, key=said.index)
    assert set(expected) <= set(said)


def test_following_shows_what_comes_and_ctrl_c_ends_it(tmp_path: Path, node_file: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.main", "logs", "trainer", "-f", "--node", node_file],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in TRAINER.splitlines()]
    assert "".join(first) == TRAINER
    with (tmp_path / "state" / "logs" / "trainer-0.log").open("a") as file:
        file.write("2026-07-31 12:00:00Z [info     ] checkpoint   job=shapes-002\n")
    assert "checkpoint" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    process.stdout.close()


def test_a_rotation_loses_no_line(tmp_path: Path) -> None:
    """As `digend up` rotates, with a small file."""
    path = tmp_path / "driver.log"
    handler = RotatingFileHandler(path, maxBytes=200, backupCount=2)
    follower = Follower(path)
    seen: list[str] = []
    for number in range(60):
        handler.emit(makeLogRecord({"msg": f"line {number}, and some more text"}))
        if number % 3 == 0:
            seen += follower.new_lines()
    handler.close()
    seen += follower.new_lines()
    follower.close()
    assert seen == [f"line {number}, and some more text" for number in range(60)]
    kept = list(lines_of(path))
    assert kept == seen[-len(kept) :]
    assert len(kept) > 10


def test_json_lines_are_read_as_console_lines_are() -> None:
    line = (
        '{"job": "j", "event": "job running", "level": "info", "timestamp": "2026-07-31T11:59:00.5Z", "process": "b"}'
    )
    (entry,) = entries("box/driver", [line])
    assert (entry.level, entry.is_about("j"), entry.time.minute) == ("info", True, 59)


def test_what_since_understands() -> None:
    assert since_of("90s", NOW) == NOW - timedelta(seconds=90)
    assert since_of("1.5h", NOW) == NOW - timedelta(minutes=90)
    assert since_of("2026-07-31 12:00", NOW) == NOW
    with pytest.raises(ValueError, match="yesterday"):
        since_of("yesterday", NOW)
