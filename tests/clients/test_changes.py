"""Verbs that change something, as processes: what they ask, print, and end with."""

import json
import signal
import subprocess
import sys
import time

import pytest

from digend.exitcodes import ExitCode
from digend.wire import requests
from digend.wire.views import Change
from tests.clients.conftest import ROOT, Digenctl
from tests.clients.fake_driver import Canned, FakeDriver

pytestmark = pytest.mark.usefixtures("driver")

ASKED: dict[str, tuple[list[str], type, dict[str, object]]] = {
    "pause": (["shapes", "-m", "lunch"], requests.Pause, {"job": "shapes-002", "why": "lunch"}),
    "resume": (["shapes-002"], requests.Resume, {"job": "shapes-002"}),
    "priority": (["shapes", "5"], requests.SetPriority, {"job": "shapes-002", "priority": 5}),
    "cancel": (["shapes", "--after", "global-step"], requests.Cancel, {"job": "shapes-002", "after": "global-step"}),
    "drain": (["box", "-m", "new kernel"], requests.Drain, {"target": "box", "why": "new kernel"}),
    "undrain": (["box"], requests.Undrain, {"target": "box"}),
}


@pytest.mark.parametrize("dry", [False, True], ids=["", "dry run"])
@pytest.mark.parametrize("verb", list(ASKED))
def test_a_request_and_what_is_said_of_it(digenctl: Digenctl, canned: Canned, verb: str, dry: bool) -> None:
    words, kind, fields = ASKED[verb]
    canned.changes = (Change(kind="job", name="other-002", before="queued", after="preparing", reason=""),)
    result = digenctl(verb, *words, *(["--dry-run"] if dry else []))
    assert result.returncode == 0, result.stderr
    (asked,) = canned.asked
    assert isinstance(asked, kind)
    assert {name: getattr(asked, name) for name in fields} == fields
    assert getattr(asked, "dry_run", None) is dry
    assert ("nothing was changed" in result.stderr) is dry
    assert "job other-002 is preparing" in result.stdout
    assert getattr(asked, "by", "somebody")


@pytest.mark.parametrize("verb", ["pause", "undrain"])
def test_as_json(digenctl: Digenctl, verb: str) -> None:
    result = digenctl(verb, *ASKED[verb][0], "--json", "--dry-run")
    said = json.loads(result.stdout)
    assert said["id"] == ("box" if verb.endswith("drain") else "shapes-002")
    assert said["dry_run"] is True
    assert (said["changes"], said["schema_version"]) == ([], 1)
    assert {"state", "reason"} <= said.keys()


@pytest.mark.parametrize("verb", ["pause", "drain"])
def test_refused_by_the_driver(digenctl: Digenctl, canned: Canned, verb: str) -> None:
    canned.refusal = (ExitCode.USAGE, "job shapes-002 is completed: it is over")
    result = digenctl(verb, *ASKED[verb][0])
    assert result.returncode == ExitCode.USAGE
    assert result.stderr == "digenctl: job shapes-002 is completed: it is over\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "priority"])
def test_an_unknown_job(digenctl: Digenctl, verb: str) -> None:
    result = digenctl(verb, "shapse", *(["5"] if verb == "priority" else []))
    assert result.returncode == ExitCode.NOT_FOUND
    assert "no job 'shapse'" in result.stderr


@pytest.mark.parametrize(
    "words", [("drain", "box"), ("priority", "shapes"), ("priority", "shapes", "2000"), ("pause",)]
)
def test_usage(digenctl: Digenctl, words: tuple[str, ...]) -> None:
    """A drain needs a reason, and a priority a number from -1000 to 1000."""
    assert digenctl(*words).returncode == ExitCode.USAGE


def test_drain_wait_says_what_is_in_the_way(digenctl: Digenctl, canned: Canned) -> None:
    canned.draining_polls = 2
    result = digenctl("drain", "box", "-m", "new kernel", "--wait")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "draining  box/generator/0: generates micro-batch 3",
        "box is drained: by ann: new kernel",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drain", "box", "-m", "new kernel", "--wait"), "box goes on draining"),
        (("wait", "shapes-002"), "job shapes-002 goes on"),
    ],
)
def test_interrupted_waiting_leaves_remote_work_alone(
    driver: FakeDriver, canned: Canned, words: tuple[str, ...], said: str
) -> None:
    canned.draining_polls = 10**6
    command = [sys.executable, "-m", "clients", *words, "--address", driver.address]
    waiting = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not canned.num_polls and time.monotonic() < deadline:
        time.sleep(0.05)
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=60)
    assert said in errors
    assert waiting.returncode == 130
    assert not [each for each in canned.asked if isinstance(each, requests.Cancel | requests.Undrain)]


def test_submit_with_priority_and_as_a_dry_run(digenctl: Digenctl, canned: Canned) -> None:
    job = str(ROOT / "configs" / "jobs" / "shapes-flow-grpo.toml")
    result = digenctl("submit", job, "--priority", "5", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "nothing was submitted; it would be job job-001, queued: waits for box: x runs there\n"
    (submit,) = canned.submits
    assert (submit.priority, submit.dry_run) == (5, True)
    assert submit.user
