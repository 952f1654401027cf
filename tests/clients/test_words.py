"""Figures as people read them, and the id that a person means."""

from dataclasses import replace

import pytest

from clients.jobs import AmbiguousId, NotFound, job_id, name_of
from clients.output import plain, text_table
from clients.story import metrics
from clients.words import age, number, plural, share
from tests.clients.fake_driver import job_view


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (200_000, "2 d"),
    ],
)
def test_ages(seconds: float | None, words: str) -> None:
    assert age(seconds) == words


def test_figures() -> None:
    assert (number(None), number(float("nan")), number(0.71234)) == ("-", "-", "0.712")
    assert (share(0.125), share(None)) == ("12.5 %", "-")
    assert (plural(1, "job"), plural(2, "job")) == ("1 job", "2 jobs")


def test_the_reward_is_read_first_and_diversity_last() -> None:
    assert metrics({"a": 1, "diversity": 2, "reward": 3, "z": 4}) == "reward 3.000, a 1.000, z 4.000, diversity 2.000"
    assert metrics({}) == "no metrics"


def test_the_newest_job_is_meant_where_none_is_named() -> None:
    jobs = [job_view("a", "running", submitted_ns=5), job_view("b", "completed", submitted_ns=9)]
    assert job_id(jobs, None) == "b"
    assert job_id(jobs, "a") == "a"
    with pytest.raises(NotFound, match="digenctl submit"):
        job_id([], None)


def test_of_what_happened_the_newest_job_that_has_begun_is_meant() -> None:
    waits = replace(job_view("b", "queued", submitted_ns=9), started_ns=None)
    runs = job_view("a", "running", submitted_ns=5)
    assert job_id([waits, runs], None, begun=True) == "a"
    assert job_id([waits, runs], None) == "b"
    assert job_id([waits], None, begun=True) == "b"


def test_beginnings_of_names() -> None:
    assert name_of("job", ["ab", "abc"], "ab") == "ab"
    assert name_of("job", ["ab", "xc"], "x") == "xc"
    with pytest.raises(AmbiguousId):
        name_of("job", ["ab", "abc"], "a")
    with pytest.raises(AmbiguousId, match=r"a-0, .*a-5 and 4 more$"):
        name_of("job", [f"a-{number}" for number in range(10)], "a")
    with pytest.raises(NotFound, match="digenctl jobs lists them"):
        name_of("job", ["ab"], "zzz")


def test_tables_and_documents() -> None:
    assert text_table([("A", "B"), ("long", "x")]) == ["A     B", "long  x"]
    assert text_table([]) == []
    assert plain({"a": (1.0, float("inf"))}) == {"a": [1.0, None]}
