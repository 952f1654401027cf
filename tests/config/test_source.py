"""Lines of keys, files that cannot be read, and overrides."""

import os
from pathlib import Path

import pytest

from digend.config.errors import ConfigError
from digend.config.overrides import apply_overrides, parse_value
from digend.config.source import absolute, key_lines, read_source


def test_lines_of_keys_tables_and_arrays() -> None:
    text = (
        '# comment\nseed = 1\n\n[model]\nfamily = "flux"\n\n[[rewards]]\nname = "a"\n[[rewards]]\nname = "b"\nx.y = 2\n'
    )
    lines = key_lines(text)
    assert lines["seed"] == 2
    assert lines["model"] == 4
    assert lines["model.family"] == 5
    assert lines["rewards[0].name"] == 8
    assert lines["rewards[1]"] == 9
    assert lines["rewards[1].x.y"] == 11


def test_a_value_over_several_lines_has_the_line_where_it_begins() -> None:
    lines = key_lines('a = [\n  1,\n  2,\n]\nb = """\nc = 3\n"""\nd = 4\n')
    assert (lines["a"], lines["b"], lines["d"]) == (1, 5, 8)
    assert "c" not in lines


def test_a_missing_key_is_placed_at_its_table(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("a = 1\n[t]\nb = 2\n")
    source = read_source(path)
    assert source.where("t.missing").endswith("x.toml:2")
    assert source.where("missing").endswith("x.toml")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"x\.toml: is no regular file"):
        read_source(path)


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("a = 1\nb = = 2\n")
    with pytest.raises(ConfigError, match=r"x\.toml:2: not TOML: "):
        read_source(path)


def test_an_unfinished_file_names_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('a = 1\nb = """\n')
    with pytest.raises(ConfigError, match=r"x\.toml:3: not TOML: .* at the end of the file"):
        read_source(path)


def test_missing_file_directory_and_other_encodings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        read_source(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="is a directory, expected a file"):
        read_source(tmp_path)
    (tmp_path / "latin.toml").write_bytes("name = 'Zoë'".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8: byte 0xeb at offset 10"):
        read_source(tmp_path / "latin.toml")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_source(tmp_path / "x.toml").table == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-4", 1e-4),
        ("true", True),
        ("[0, 3]", [0, 3]),
        ('"3"', "3"),
        ("flux", "flux"),
        ("a = 1\nb", "a = 1\nb"),
    ],
)
def test_override_values(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_overrides_reach_tables_arrays_and_new_keys() -> None:
    table = {"rewards": [{"name": "a"}], "seed": 1}
    keys = apply_overrides(table, ["seed=2", "rewards[0].weight = 0.5", "training.betas=[0.9, 0.99]"])
    assert table == {
        "seed": 2,
        "rewards": [{"name": "a", "weight": 0.5}],
        "training": {"betas": [0.9, 0.99]},
    }
    assert keys == ("seed", "rewards[0].weight", "training.betas")


@pytest.mark.parametrize("override", ["seed", "=3", "a b=3", "rewards[1].name=x", "seed.x=1", "seed[0]=1"])
def test_overrides_that_lead_nowhere(override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        apply_overrides({"rewards": [{}], "seed": 1}, [override])


def test_what_python_would_stumble_over_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    for text in ("a = " + "[" * 10_000, "a = " + "9" * 10_000):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"x\.toml: not TOML: "):
            read_source(path)
    path.write_text(".".join("a" * 3000) + " = 1")
    with pytest.raises(ConfigError, match=r"x\.toml: tables or arrays nested deeper than 64"):
        read_source(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_source("a\0b.toml")
    assert absolute(tmp_path, "~nobody-of-this-name/x") == f"{tmp_path}/~nobody-of-this-name/x"
    assert parse_value("[" * 10_000) == "[" * 10_000
