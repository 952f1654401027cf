"""Every verb where nobody is there: exit code 69, one message, and what to do next."""

import json

import pytest

from digend import __version__
from tests.clients.conftest import ROOT, Digenctl

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
