"""A record as a line of JSON, there and back."""

import json
import math

import pytest

from daemons.recorder.lines import decode, encode
from digend.wire.records import JobState, Notice, Record, StepRecord
from tests.recorder.plausible import plausible_run


def test_every_kind_of_record_comes_back_as_it_went() -> None:
    records = [record for record in plausible_run() if not _holds_nan(record)]
    assert len({record.body.kind for record in records}) == 11
    assert [decode(encode(record)) for record in records] == records


def test_figures_that_are_not_finite_are_valid_json_and_come_back() -> None:
    record = next(record for record in plausible_run() if _holds_nan(record))
    line = encode(record)
    assert "NaN" in json.loads(line)["gradient_norm"]
    back = decode(line).body
    assert isinstance(back, StepRecord)
    assert math.isnan(back.gradient_norm)


def test_a_line_has_the_promised_fields_and_no_newline() -> None:
    record = Record(job="j", seq=3, at_ns=5, body=Notice(level="warning", message="two\nlines \u2028 and a tab\t"))
    line = encode(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "seq": 3,
        "at_ns": 5,
        "job": "j",
        "kind": "notice",
        "level": "warning",
        "message": "two\nlines \u2028 and a tab\t",
        "details": {},
    }
    assert decode(line) == record


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '"text"', '{"seq":1}', '{"seq":1,"at_ns":2,"job":"j","kind":"unheard"}', "\x00\x00"]
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_every_proper_prefix_of_a_line_is_refused() -> None:
    line = encode(Record(job="j", seq=3, at_ns=5, body=JobState(state="running", reason="ü"))).encode()
    for length in range(len(line)):
        with pytest.raises(ValueError):
            decode(line[:length])


def _holds_nan(record: Record) -> bool:
    return isinstance(record.body, StepRecord) and math.isnan(record.body.gradient_norm)
