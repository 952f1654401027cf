"""Prompts in letters that Pillow's own font lacks: another font of this machine, or no letters at all; never boxes."""

import subprocess

import pytest

from daemons.recorder import fonts


@pytest.fixture(autouse=True)
def _ask_anew() -> None:
    fonts._system_font.cache_clear()


def test_plain_text_is_in_the_font_that_comes_along() -> None:
    text, font = fonts.written("a red circle", 13) or ("", None)
    assert text == "a red circle"
    assert font is fonts.own(13)


def test_another_script_is_in_a_font_that_has_it_where_there_is_one() -> None:
    cyrillic = "красный круг"
    found = fonts.written(cyrillic, 13)
    if fonts._system_font("".join(sorted(set(cyrillic) - {" "}))) is None:
        assert found is None
        return
    assert found is not None
    text, font = found
    assert text == cyrillic
    assert all(fonts._has(font, letter) for letter in cyrillic if letter != " ")


def test_without_any_font_for_it_there_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*words: object, **options: object) -> None:
        raise FileNotFoundError("fc-list")

    monkeypatch.setattr(subprocess, "run", missing)
    assert fonts.written("一个红色的圆", 13) is None
    text, _ = fonts.written("a red circle 🔴", 13) or ("", None)
    assert text == "a red circle ", "a single sign is left out"
