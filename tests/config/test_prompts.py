"""Prompts files: the four formats give the same, other columns are metadata, and a bad row is named."""

import json
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from digend.config.errors import ConfigError
from digend.config.prompts import PromptRow, packed_prompts, read_prompts, unpacked_prompts
from digend.job_check import read_job
from tests.config.support import write_job

ROWS = [
    PromptRow('a sign that says "open, now"', {"target": "open, now", "difficulty": "1"}),
    PromptRow("ein Schild: „zu“", {"target": "zu", "difficulty": "2"}),
]


def written(folder: Path, ending: str) -> str:
    path = folder / f"prompts.{ending}"
    table: list[dict[str, str | int]] = [
        {"prompt": f" {row.text} ", **row.metadata, "difficulty": number} for number, row in enumerate(ROWS, 1)
    ]
    if ending == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(table), path)
    elif ending == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in table) + "\n\n", "utf-8")
    else:
        cells: list[list[str | int]] = [list(table[0]), *[list(row.values()) for row in table]]
        quoted = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in line) for line in cells]
        path.write_text("\n".join(quoted), "utf-8")
    return str(path)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_tables(tmp_path: Path, ending: str) -> None:
    assert read_prompts(written(tmp_path, ending)) == ROWS


def test_values_that_are_no_text_are_json(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a", "boxes": [1, 2], "none": null, "yes": true, "x": 0.5}\n')
    assert read_prompts(str(path)) == [PromptRow("a", {"boxes": "[1, 2]", "none": "null", "yes": "true", "x": "0.5"})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ', "row 2: not JSON"),
        ("p.jsonl", '"a"\n', "row 1: expected an object with a 'prompt'"),
        ("p.jsonl", '{"prompts": "a"}\n', "row 1: no column 'prompt'; did you mean to call 'prompts' so?"),
        ("p.jsonl", '{"prompt": " "}\n', "row 1: prompt = ' ': expected a text"),
        ("p.jsonl", '{"prompt": 3}\n', "row 1: prompt = 3: expected a text"),
        ("p.csv", "prompt,target\na,b\nc\n", "row 2: expected the 2 columns of the first line"),
        ("p.csv", "prompt,target\na,b,c\n", "row 1: expected the 2 columns"),
        ("p.csv", "caption,target\na,b\n", "row 1: no column 'prompt' (there are caption, target)"),
        ("p.csv", 'prompt\n"a\n', "not CSV"),
        ("p.csv", "prompt\n", "no prompts"),
        ("p.csv", "prompt,tag,tag\na,b,c\n", "column 'tag' is there twice"),
        ("p.jsonl", '{"prompt": "a", "prompt": "b"}\n', "row 1: not JSON: 'prompt' is there twice"),
        ("p.jsonl", '{"prompt": "a \\ud800"}\n', "row 1: half of a surrogate pair"),
        ("p.jsonl", '{"prompt": "a", "tag": "\\udc00"}\n', "row 1: half of a surrogate pair"),
        ("p.jsonl", '{"prompt": "a", "tag": ' + "[" * 100_000, "row 1: not JSON"),
        ("p.parquet", "PAR1 and then nothing", "not parquet"),
        ("p.parquet", "", "not parquet"),
    ],
)
def test_a_bad_file_names_the_row(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_prompts(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@given(st.lists(st.builds(PromptRow, st.text(), st.dictionaries(st.text(), st.text())), min_size=1))
def test_packed_and_back(rows: list[PromptRow]) -> None:
    assert unpacked_prompts(packed_prompts(rows)) == rows


@pytest.mark.parametrize("content", [b"[]", b"{}", b'["a"]', b'[["a"]]', b'[["a", {"b": 1}]]', b"[[1, {}]]", b"x"])
def test_what_is_no_list_of_prompts(content: bytes) -> None:
    with pytest.raises(ValueError):
        unpacked_prompts(content)


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_a_prompt_may_have_what_ends_lines_elsewhere(tmp_path: Path, ending: str) -> None:
    rows = [PromptRow("one\u2028two\x85three\x0cfour"), PromptRow("five")]
    lines = [json.dumps({"prompt": row.text}, ensure_ascii=False) if ending == "jsonl" else row.text for row in rows]
    path = tmp_path / f"p.{ending}"
    path.write_text("\r\n".join(lines), "utf-8", newline="")
    assert read_prompts(str(path)) == rows


def test_an_upload_that_is_no_text_is_refused() -> None:
    for content in (b'[["a \\ud800", {}]]', b'[["a", {"\\ud800": "b"}]]', b"[" * 100_000):
        with pytest.raises(ValueError, match=r"expected \[text, metadata\]|recursion"):
            unpacked_prompts(content)


def test_a_hundred_thousand_prompts_and_an_evaluation_of_them_all_is_warned_of(tmp_path: Path) -> None:
    rows = range(100_000)
    table = pyarrow.table({"prompt": [f"a red circle {at}" for at in rows], "target": [str(at) for at in rows]})
    parquet.write_table(table, tmp_path / "many.parquet")
    job = write_job(tmp_path)
    inputs = read_job(job, ["data.prompts=many.parquet"])
    assert len(inputs.prompts) == 100_000
    assert inputs.prompts[99_999].metadata == {"target": "99999"}
    (warning,) = inputs.warnings
    assert warning.startswith("eval: 100000 prompts make 800000 samples over the job, training draws 16")
    assert not read_job(job, ["data.prompts=many.parquet", "eval.enabled=false"]).warnings
    assert not read_job(job, ["data.prompts=many.parquet", "eval.prompts=prompts.txt"]).warnings
