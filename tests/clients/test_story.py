"""`digenctl story` against a driver of canned answers."""

import json

import pytest

from digend.wire import records as r
from digend.wire.records import Record
from digend.wire.story import Transition
from digend.wire.tasks import Receipt
from tests.clients.conftest import Digenctl
from tests.clients.fake_driver import Canned

pytestmark = pytest.mark.usefixtures("driver")

START_NS = 1_785_499_200_000_000_000

TOLD = (
    Transition(at_ns=START_NS, what="leased: score", cause="it waited in SQ", worker="box/generator/0", lease="1.4"),
    Transition(at_ns=START_NS + 1_250_000_000, what="score: done in 1.25 s"),
)


@pytest.fixture(autouse=True)
def stories(canned: Canned) -> None:
    canned.stories = {name: TOLD for name in ("shapes-002", "shapes-002/3/2", "box/generator/0", "1.4")}


def test_times_are_relative_to_the_first_or_dates(digenctl: Digenctl) -> None:
    result = digenctl("story", "shapes-002/3/2")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "micro-batch shapes-002/3/2, in seconds after 2026-07-31 12:00:00.000Z",
        "TIME    WHAT                   WORKER           LEASE  CAUSE",
        "+0.000  leased: score          box/generator/0  1.4    it waited in SQ",
        "+1.250  score: done in 1.25 s  -                -      -",
    ]
    dates = digenctl("story", "shapes-002/3/2", "--utc", "--no-header").stdout.splitlines()
    assert dates[2].startswith("2026-07-31 12:00:01.250Z  score: done")


@pytest.mark.parametrize(
    ("named", "whole"),
    [
        (None, "shapes-002"),
        ("sha", "shapes-002"),
        ("sha/3/2", "shapes-002/3/2"),
        ("box/g", "box/generator/0"),
        ("1.4", "1.4"),
    ],
)
def test_what_is_meant(digenctl: Digenctl, named: str | None, whole: str) -> None:
    result = digenctl("story", *([named] if named else []), "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["id"] == whole
    assert document["transitions"][0]["at_ns"] == START_NS


def test_what_is_not_there_is_told_with_the_nearest(digenctl: Digenctl, canned: Canned) -> None:
    task = r.TaskRecord(
        worker="w",
        task="update",
        lease="1.7",
        start_ns=0,
        end_ns=1,
        receipt=Receipt(total_ns=1, stages=()),
        global_step=4,
        micro_batch=2,
    )
    canned.records["shapes-002"] = [Record(job="shapes-002", seq=0, at_ns=0, body=task)]
    for wanted, said in {
        "shapes-002/4/1": "nothing is known of micro-batch shapes-002/4/1; did you mean shapes-002/4/2?",
        "shapes-002@70": "did you mean shapes-002@7?",
        "1.8": "did you mean 1.7?",
        "box/trainer/9": "did you mean box/trainer/0?",
        "shopes": "did you mean shapes-002?",
        "shopes/1/2": "did you mean shapes-002?",
    }.items():
        result = digenctl("story", wanted)
        assert result.returncode == 5, wanted
        assert said in result.stderr
    assert digenctl("story", "box/printer/0").returncode == 2
    assert "JOB/ROLLOUT/MICRO-BATCH" in digenctl("story", "box/printer/0").stderr
