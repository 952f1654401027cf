"""Choosing columns: of what -o says, and of what each verb does with it, in a pipe and on a terminal."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from clients.columns import Column, UnknownColumn, columns_of
from clients.main import cli
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, FakeDriver, job_view

EVERY = (Column("id", str), Column("pid", str, wide=True), Column("state", str), Column("reason", str))
LISTING = ["jobs", "nodes", "queue", "status"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, "id state reason"),
        ("", "id state reason"),
        ("reason,id", "reason id"),
        ("ID, State", "id state"),
        ("wide", "id pid state reason"),
        ("+pid", "id state reason pid"),
        ("+pid,+id", "id state reason pid"),
        ("state,wide", "state id pid reason"),
    ],
)
def test_columns_that_are_meant(wanted: str | None, names: str) -> None:
    assert [column.name for column in columns_of(EVERY, wanted)] == names.split()


@pytest.mark.parametrize("wanted", ["stat", "id,+stat", "+stat"])
def test_an_unknown_column_names_the_nearest_and_all(wanted: str) -> None:
    with pytest.raises(
        UnknownColumn, match=r"no column 'stat'; did you mean state\? \(columns: id, pid, state, reason"
    ):
        columns_of(EVERY, wanted)


@pytest.mark.parametrize("verb", LISTING)
def test_every_listing_has_columns_a_reason_and_json(driver: FakeDriver, verb: str) -> None:
    def shown(*args: str) -> str:
        return CliRunner().invoke(cli, ["--address", driver.address, verb, *args]).stdout

    first = "queue" if verb == "queue" else "state"
    assert f"{first.upper()}  " in shown("-o", f"{first},reason")
    assert "REASON" in shown()
    assert "REASON" in shown("-o", "reason")
    assert "REASON" not in shown("-o", "reason", "--no-header")
    assert shown("-o", first, "--json") == shown("--json")
    wrong = CliRunner().invoke(cli, [verb, "-o", "reson"])
    assert "no column 'reson'; did you mean reason? (columns: " in wrong.stderr
    assert "--columns COLUMNS" in shown("--help")


def test_a_wrong_column_is_told_before_a_driver_is_asked(digenctl: Digenctl) -> None:
    assert digenctl("jobs", "-o", "nothing").returncode == 2
    assert digenctl("jobs", "-o", "id").returncode == 69


def test_the_shell_is_offered_columns(digenctl: Digenctl) -> None:
    words = {"COMP_WORDS": "digenctl jobs -o id,st", "COMP_CWORD": "3"}
    result = digenctl(_DIGENCTL_COMPLETE="bash_complete", **words)
    assert result.stdout.split() == ["plain,id,state", "plain,id,step", "plain,id,started"]


def on_a_terminal(folder: Path, *args: str, **environ: str) -> str:
    ours, theirs = pty.openpty()
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR") and "DIGEND_" not in name
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.main", *args],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100", **environ},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux: how the end of a terminal reads once its last holder has gone
    finally:
        os.close(ours)
    process.wait(20)
    return shown.decode()


@pytest.mark.usefixtures("driver")
def test_colour_is_for_terminals_that_want_it(tmp_path: Path, digenctl: Digenctl) -> None:
    piped = digenctl("jobs", FORCE_COLOR="1").stdout
    assert "\x1b" not in piped
    coloured, plain = on_a_terminal(tmp_path, "jobs"), on_a_terminal(tmp_path, "jobs", NO_COLOR="1")
    assert "\x1b[32mrunning" in coloured
    assert "\x1b[3" not in plain
    assert plain.split("\n")[1].split()[:3] == piped.split("\n")[1].split()[:3]


@pytest.mark.usefixtures("driver")
def test_a_narrow_terminal_wraps_reasons_and_no_names(tmp_path: Path, canned: Canned) -> None:
    reason = "waits for a very long time, and then for quite some more"
    canned.jobs = {"shapes-002": job_view("shapes-002", "queued", reason=reason)}
    text = on_a_terminal(tmp_path, "jobs", "-o", "id,state,reason", NO_COLOR="1", COLUMNS="40")
    shown = re.sub("\x1b\\[[0-9;]*m", "", text).split("\r\n")
    assert all(len(line) <= 40 for line in shown)
    assert shown[1].startswith("shapes-002  queued  waits for")
    assert len([line for line in shown if line.strip()]) > 2
