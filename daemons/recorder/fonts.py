"""Letters for sheets: the font that comes with Pillow, or one of this machine's that has what a prompt is written in.

Owns the choice. Bundles nothing: fontconfig is asked (`fc-list`) where it is there. Invariant: no letter is drawn that
its font does not have, so that there are no empty boxes; a text that cannot be written is None.
"""

import subprocess
from functools import cache

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_UNASSIGNED = "\U0010ffff"
_FEW = 0.2
"""Share of letters that may be left out (an emoji) before a text is not written at all."""
_ASK_S = 5.0


def own(size: int) -> Font:
    return _own(size)


def written(text: str, size: int) -> tuple[str, Font] | None:
    """The text as it can be drawn, and in what; None where too little of it can be."""
    letters = {letter for letter in text if not letter.isspace()}
    missing = {letter for letter in letters if not _has(_own(size), letter)}
    if not missing:
        return text, _own(size)
    path = _system_font("".join(sorted(letters)))
    if path is not None:
        return text, ImageFont.truetype(path, size)
    if sum(letter in missing for letter in text) > _FEW * len(text):
        return None
    return "".join(letter for letter in text if letter not in missing), _own(size)


@cache
def _own(size: int) -> Font:
    return ImageFont.load_default(size)


def _has(font: Font, letter: str) -> bool:
    """Whether it looks like anything but the font's box for what it lacks."""
    return bytes(font.getmask(letter)) != _box(font)


@cache
def _box(font: Font) -> bytes:
    return bytes(font.getmask(_UNASSIGNED))


@cache
def _system_font(letters: str) -> str | None:
    """A file whose font has all of them, a plain upright one where there is a choice."""
    charset = " ".join(f"{ord(letter):x}" for letter in letters)
    try:
        told = subprocess.run(
            ["fc-list", f":charset={charset}:scalable=true", "file"],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    files = [line.rstrip(": \n") for line in told.splitlines() if line.strip()]
    return min(files, key=_taste, default=None)


def _taste(path: str) -> tuple[bool, bool, int, str]:
    name = path.rpartition("/")[2]
    return any(word in name for word in ("Bold", "Italic", "Oblique", "Mono")), "Sans" not in name, len(name), path
