"""Sheets of samples: a row for each prompt of an evaluation, and before against after.

Owns layout and drawing. Knows no network and no run folder. Invariant: pictures smaller than 64 pixels are
enlarged by a whole factor without smoothing, larger than 256 are reduced; a lost picture is drawn as lost,
never left out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from daemons.recorder import fonts
from daemons.recorder.fonts import Font
from daemons.recorder.sheetmap import MappedRow, Pixels, SheetMap, cut, mean, read_map

MAX_COLUMNS = 16
MIN_CELL, MAX_CELL = 64, 256
_TEXT_WIDTH, _MARGIN, _SPACE, _LABEL, _HEAD = 232, 16, 4, 15, 28
_PAPER, _INK, _SOFT, _LOST = (252, 252, 250), (28, 30, 34), (110, 114, 122), (226, 223, 217)

Point = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A prompt's samples. A picture is None where it was lost; a reward is None where scoring failed."""

    prompt: str
    text: str
    pictures: tuple[Pixels | None, ...]
    rewards: tuple[float | None, ...]


def cell_size(width: int, height: int) -> Point:
    """How large a sample is drawn: at least 64 pixels on its longer side, at most 256."""
    longer = max(width, height)
    if longer < MIN_CELL:
        factor = math.ceil(MIN_CELL / longer)
        return width * factor, height * factor
    if longer <= MAX_CELL:
        return width, height
    return max(round(width * MAX_CELL / longer), 1), max(round(height * MAX_CELL / longer), 1)


def draw_sheet(rows: Sequence[Row], *, title: str, source: str) -> tuple[Image.Image, SheetMap]:
    """The sheet of one evaluation: text left, pictures right, each with its reward below."""
    native = _native(rows)
    cell = cell_size(*native)
    columns = min(max((len(row.pictures) for row in rows), default=1), MAX_COLUMNS)
    pitch = (cell[0] + _SPACE, cell[1] + _LABEL + _SPACE)
    left, top = _MARGIN + _TEXT_WIDTH, _MARGIN + _HEAD
    sheet = _Sheet(left + columns * pitch[0] + _MARGIN, top + len(rows) * pitch[1] + _MARGIN, cell)
    sheet.write((_MARGIN, _MARGIN - 2), title, 15)
    mapped = []
    for number, row in enumerate(rows):
        y = top + number * pitch[1]
        sheet.describe((_MARGIN, y), row, f"mean {figure(mean(row.rewards))}")
        at = [(left + column * pitch[0], y) for column in range(columns)]
        corners = [sheet.place(point, picture) for point, picture in zip(at, row.pictures[:columns], strict=False)]
        for point, reward in zip(at, row.rewards[:columns], strict=False):
            sheet.write((point[0], y + cell[1] + 1), figure(reward), 11, _SOFT)
        rewards = tuple(row.rewards[:columns])
        mapped.append(MappedRow(prompt=row.prompt, text=row.text, rewards=rewards, corners=tuple(corners)))
    return sheet.image, SheetMap(source=source, title=title, cell=cell, native=native, rows=tuple(mapped))


def draw_comparison(before: Path, after: Path, *, columns: int = 8) -> Image.Image | None:
    """Before left, after right, the same prompts and seeds; None where the two sheets share no prompt."""
    old, new = read_map(before), read_map(after)
    if old is None or new is None:
        return None
    known = {row.prompt: row for row in old.rows}
    pairs = [(known[row.prompt], row) for row in new.rows if row.prompt in known]
    if not pairs:
        return None
    columns = min(columns, max(len(row.corners) for pair in pairs for row in pair))
    pitch = (new.cell[0] + _SPACE, new.cell[1] + 2 * _SPACE)
    left, top = _MARGIN + _TEXT_WIDTH, _MARGIN + _HEAD
    middle = left + columns * pitch[0] + 2 * _MARGIN
    sheet = _Sheet(middle + columns * pitch[0] + _MARGIN, top + len(pairs) * pitch[1] + _MARGIN, new.cell)
    sheet.write((left, _MARGIN - 2), "before", 15)
    sheet.write((middle, _MARGIN - 2), "after", 15)
    with Image.open(before) as old_sheet, Image.open(after) as new_sheet:
        for number, (row, other) in enumerate(pairs):
            y = top + number * pitch[1]
            note = f"mean {figure(mean(row.rewards))} to {figure(mean(other.rewards))}"
            sheet.describe((_MARGIN, y), row, note)
            for x, pictures in ((left, cut(old_sheet, old, row)), (middle, cut(new_sheet, new, other))):
                for column, picture in enumerate(pictures[:columns]):
                    sheet.place((x + column * pitch[0], y), picture)
    return sheet.image


def draw_frames(films: Sequence[Sequence[Pixels | None]]) -> Image.Image:
    """Pictures only, a row for each prompt: one frame of an animation."""
    cell = cell_size(*_size_of(picture for film in films for picture in film))
    columns = max(len(film) for film in films)
    sheet = _Sheet(columns * (cell[0] + _SPACE) + _SPACE, len(films) * (cell[1] + _SPACE) + _SPACE, cell)
    for number, film in enumerate(films):
        for column, picture in enumerate(film):
            sheet.place((_SPACE + column * (cell[0] + _SPACE), _SPACE + number * (cell[1] + _SPACE)), picture)
    return sheet.image


def figure(value: float | None) -> str:
    """In the letters of the font that comes with Pillow: no dash, no arrow."""
    return "failed" if value is None or not math.isfinite(value) else f"{value:.3g}"


class _Sheet:
    """A canvas that knows how large a picture is drawn."""

    def __init__(self, width: int, height: int, cell: Point) -> None:
        self.image = Image.new("RGB", (width, height), _PAPER)
        self._draw = ImageDraw.Draw(self.image)
        self._cell = cell

    def write(self, at: Point, text: str, size: int, ink: tuple[int, int, int] = _INK) -> None:
        self._draw.text(at, text, fill=ink, font=fonts.own(size))

    def describe(self, at: Point, row: Row | MappedRow, note: str) -> None:
        """The prompt's text, or its uid where no font here has its letters: the report has the text."""
        text, font = fonts.written(row.text, 13) or (f"prompt {row.prompt}, text in report.html", fonts.own(13))
        lines = _wrapped(text, font, _TEXT_WIDTH - 2 * _SPACE, max((self._cell[1] - 15) // 16, 1))
        for number, line in enumerate(lines):
            self._draw.text((at[0], at[1] + 16 * number), line, fill=_INK, font=font)
        self.write((at[0], at[1] + 16 * len(lines) + 1), note, 12, _SOFT)

    def place(self, at: Point, picture: Pixels | None) -> Point | None:
        """Draw a picture, or that it was lost; returns its corner."""
        if picture is None:
            self._draw.rectangle((*at, at[0] + self._cell[0] - 1, at[1] + self._cell[1] - 1), fill=_LOST)
            self.write((at[0] + 5, at[1] + self._cell[1] // 2 - 14), "picture\nlost", 11, _SOFT)
            return None
        image = Image.fromarray(picture.transpose(1, 2, 0).copy())
        if image.size != self._cell:
            tiny = max(image.size) < MIN_CELL
            image = image.resize(self._cell, Image.Resampling.NEAREST if tiny else Image.Resampling.LANCZOS)
        self.image.paste(image, at)
        return at


def _native(rows: Sequence[Row]) -> Point:
    return _size_of(picture for row in rows for picture in row.pictures)


def _size_of(pictures: Iterable[Pixels | None]) -> Point:
    for picture in pictures:
        if picture is not None:
            return picture.shape[2], picture.shape[1]
    return MIN_CELL, MIN_CELL


def _words(text: str, font: Font, width: int) -> list[str]:
    """Split at blanks, and inside of what is longer than a line: some scripts have no blanks."""
    words: list[str] = []
    for word in text.split():
        while font.getlength(word) > width and len(word) > 1:
            fits = next(n for n in range(len(word) - 1, 0, -1) if n == 1 or font.getlength(word[:n]) <= width)
            words.append(word[:fits])
            word = word[fits:]
        words.append(word)
    return words


def _wrapped(text: str, font: Font, width: int, max_lines: int) -> list[str]:
    lines = [""]
    for word in _words(text, font, width):
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > max_lines:
        return [*lines[: max_lines - 1], lines[max_lines - 1] + " …"]
    return lines
