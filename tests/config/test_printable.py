"""What others wrote, on a terminal."""

import pytest

from digend.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve café, 猫 😀", "naïve café, 猫 😀"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\nc\td", "a\\x0db\\x0ac\td"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f", "\\x7f"),
    ],
)
def test_control_characters_are_shown_and_nothing_else_is_changed(text: str, shown: str) -> None:
    assert printable(text, keep="\t") == shown
