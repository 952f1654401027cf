"""`digenctl simulate`: the document a program reads, the chart a person reads, the trace, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from clients.chart import Piece, cells, chart
from tests.clients.conftest import Digenctl
from tests.clients.test_help import imported_by
from tests.telemetry.trace_format import check_trace

KEYS = [
    "schema_version",
    "makespan",
    "makespans",
    "decisions",
    "assisted",
    "ideal",
    "share_of_ideal",
    "hindsight",
    "search_ms",
    "states",
    "bubbles",
]
TIMES = ("--micro-batches", "4", "--generate", "10", "--assist", "12", "--update", "4")


def simulated(digenctl: Digenctl, *args: str) -> dict[str, Any]:
    result = digenctl("simulate", *args, "--json")
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_document(digenctl: Digenctl) -> None:
    document = simulated(digenctl, *TIMES, "--strategy", "bts")
    assert list(document) == KEYS
    assert document["makespan"] == 34.0
    assert document["makespans"] == [34.0]
    assert document["decisions"] == ["tag", "update", "update", "update", "update"]
    assert document["assisted"] == document["decisions"].count("tag") == 1
    assert document["ideal"] == pytest.approx(320 / 11)
    assert document["share_of_ideal"] == pytest.approx(320 / 11 / 34)
    assert document["hindsight"] == 34.0
    assert len(document["search_ms"]) >= 1
    assert document["states"] >= 1
    assert all(list(bubble) == ["worker", "from", "to", "cause"] for bubble in document["bubbles"])
    assert {"worker": "generator", "from": 30.0, "to": 34.0, "cause": "update"} in document["bubbles"]


def test_all_options(digenctl: Digenctl) -> None:
    args = ["--score", "0.1", "--scoring", "dedicated", "--servers", "2", "--switch", "0.5", "--commit", "1"]
    args += ["--staleness", "0.5", "--steps", "3", "--noise", "0.1", "--seed", "7"]
    document = simulated(digenctl, *TIMES, *args)
    assert len(document["makespans"]) == 3
    assert sum(document["makespans"]) == pytest.approx(document["makespan"])
    assert document["hindsight"] <= document["makespan"]
    assert {bubble["worker"] for bubble in document["bubbles"]} >= {"reward/0", "reward/1", "trainer"}
    assert {**simulated(digenctl, *TIMES, *args), "search_ms": 0} == {**document, "search_ms": 0}
    assert simulated(digenctl, *TIMES, *args, "--seed", "8")["makespan"] != document["makespan"]


def test_strategies_without_a_search(digenctl: Digenctl) -> None:
    document = simulated(digenctl, *TIMES, "--strategy", "static:1")
    assert (document["search_ms"], document["states"], document["assisted"]) == ([], 0, 1)


def test_without_assist_nothing_is_assisted(digenctl: Digenctl) -> None:
    document = simulated(
        digenctl, "--micro-batches", "3", "--generate", "0.1", "--update", "0.2", "--strategy", "always"
    )
    assert document["assisted"] == 0
    assert document["makespan"] == 0.7


@pytest.mark.parametrize("columns", [60, 120])
def test_the_chart_fits(digenctl: Digenctl, columns: int) -> None:
    result = digenctl("simulate", *TIMES, "--score", "1", "--commit", "2", "--steps", "2", COLUMNS=str(columns))
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["generator", "trainer"]
    assert all(len(line) <= columns for line in lines)
    assert len(lines[0]) == columns
    assert "makespan" in result.stdout
    assert "WAITS FOR" in result.stdout
    assert "█ generate" in result.stdout


def test_a_column_shows_what_fills_most_of_it() -> None:
    pieces = [
        Piece("trainer", "assist", 0, 5),
        Piece("trainer", "update", 5, 8),
        Piece("trainer", "bubble", 8, 9, "generation"),
        Piece("trainer", "commit", 9, 10),
    ]
    rows = chart(pieces, 0, 10, ["trainer"], "10", 19)
    assert rows[0] == "trainer  ▓▓▓▓▓▄▄▄1◆"
    assert rows[1].split() == ["0", "10"]
    assert "▓ TAG" in rows[2]
    assert "1 bubble: generation" in rows[-1]
    assert "generate" not in rows[2]
    coarse = chart(pieces, 0, 10, ["trainer"], "10", 9)
    assert len(coarse[0]) == 9 + 10, "never fewer than ten columns"


@pytest.mark.parametrize("columns", [1, 3, 7, 10, 33])
def test_cells_are_full_or_empty_exactly(columns: int) -> None:
    assert cells([Piece("w", "update", 0, 10)], 0, 10, columns) == ["update"] * columns
    assert cells([Piece("w", "update", 20, 30)], 0, 10, columns) == [""] * columns
    halves = cells([Piece("w", "score", -5, 5), Piece("w", "update", 5, 50)], 0, 10, columns * 2)
    assert halves == ["score"] * columns + ["update"] * columns


def test_the_trace(digenctl: Digenctl, tmp_path: Path) -> None:
    result = digenctl("simulate", *TIMES, "--score", "1", "--trace", "t.json")
    assert result.returncode == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_trace(events)
    names = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert set(names) == {"generator", "trainer"}
    tasks = [event for event in events if event["ph"] == "X" and event["cat"] != "bubble"]
    assert {event["name"] for event in tasks} >= {"generate", "score", "update"}
    assert sum(event["dur"] for event in tasks if event["name"] == "update") == 4 * 4e6
    causes = [event["args"]["cause"] for event in events if event.get("cat") == "bubble"]
    bubbles = simulated(digenctl, *TIMES, "--score", "1")["bubbles"]
    assert sorted(causes) == sorted(bubble["cause"] for bubble in bubbles)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--generate", "-1"), "'--generate': -1: must be from 1e-09 to 1e+09"),
        (("--update", "0"), "'--update': 0: must be from 1e-09"),
        (("--assist", "nan"), "'--assist': nan: must be"),
        (("--score", "inf"), "'--score': inf: must be 0, or from"),
        (("--switch", "1e-300"), "'--switch': 1e-300: must be"),
        (("--commit", "1e308"), "'--commit': 1e308: must be"),
        (("--micro-batches", "0"), "micro_batches = 0"),
        (("--micro-batches", "1000000000"), "micro_batches = 1000000000: must be at least 1 and at most 100,000"),
        (("--staleness", "2"), "staleness = 2.0"),
        (("--steps", "0"), "steps = 0"),
        (("--noise", "1"), "noise = 1.0"),
        (("--strategy", "bst"), "'bst'"),
        (("--servers", "0"), "--servers"),
        (("--servers", "99999999999"), "--servers"),
        (("--scoring", "elsewhere"), "--scoring"),
        (("--trace", "no/such/folder/t.json"), "no/such/folder/t.json"),
    ],
)
def test_what_is_wrong_is_named(digenctl: Digenctl, args: tuple[str, ...], named: str) -> None:
    result = digenctl("simulate", *TIMES, *args, "--json")
    assert result.returncode == 2
    assert named in result.stderr
    assert named in json.loads(result.stdout)["error"]["message"]


def test_a_missing_time_is_named(digenctl: Digenctl) -> None:
    result = digenctl("simulate", "--micro-batches", "4", "--generate", "1")
    assert result.returncode == 2
    assert "--update" in result.stderr


def test_help_imports_no_search() -> None:
    assert not [name for name in imported_by("simulate", "--help") if name.startswith("broker")]
