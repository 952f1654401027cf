"""What <TAB> offers, as the shells' scripts get it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from clients.main import cli
from tests.clients.fake_driver import Canned, FakeDriver


def offered(*words: str) -> list[str]:
    """For the last of the words, which is begun and not done."""
    complete = ShellComplete(cli, {}, "digenctl", "_DIGENCTL_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def kinds(*words: str) -> list[str]:
    complete = ShellComplete(cli, {}, "digenctl", "_DIGENCTL_COMPLETE")
    return [item.type for item in complete.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("verb", ["watch", "wait", "cancel", "pause", "fork", "timeline", "export", "explain", "logs"])
def test_jobs(driver: FakeDriver, verb: str) -> None:
    assert offered(verb, "--address", driver.address, "")[:2] == ["shapes-002", "other-001"]
    assert offered("--address", driver.address, verb, "oth") == ["other-001"]
    assert offered(verb, "--address", driver.address, "nothing-like-it") == []


def test_nodes_and_workers(driver: FakeDriver, canned: Canned) -> None:
    names = [worker.name for worker in canned.nodes]
    assert offered("drain", "--address", driver.address, "")[-len(names) :] == names
    assert canned.nodes[0].node in offered("undrain", "--address", driver.address, "")
    assert offered("show", "node", "--address", driver.address, names[0][:-1]) == [names[0]]


def test_keys_and_strategies() -> None:
    assert offered("submit", "--set", "training.weight_d") == ["training.weight_decay="]
    assert offered("fork", "--set", "rewards[0].we") == ["rewards[0].weight="]
    assert "timing.lost_s" in offered("config", "show", "timing.")
    assert offered("config", "show", "--set", "timing.lost") == ["timing.lost_s="]
    assert offered("simulate", "--strategy", "b") == ["bts"]


@pytest.mark.parametrize(
    "words",
    [("submit", "jo"), ("plan", "jo"), ("config", "check", "jo"), ("status", "--node", "n"), ("jobs", "--key", "")],
)
def test_files(words: tuple[str, ...]) -> None:
    """The shell itself completes them."""
    assert kinds(*words) == ["file"]


def test_nothing_is_said_where_no_driver_answers(tmp_path: Path) -> None:
    environ = {**os.environ, "_DIGENCTL_COMPLETE": "bash_complete", "COMP_WORDS": "digenctl watch s", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "clients"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
