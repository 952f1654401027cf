"""Before and after pictures for the report, as data URIs.

Owns cutting them out of the sheets of a run folder. Invariant: a strip has at most `MAX_PICTURES` pictures
and is small enough to be written into a page; tiny pictures stay as sampled and are enlarged by the browser
without smoothing.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from daemons.recorder.pictures import sheet_name
from daemons.recorder.sheetmap import MappedRow, Pixels, SheetMap, cut, read_map
from daemons.recorder.verdict import PromptChange
from digend.wire.records import EvaluationRecord

MAX_PICTURES, COLUMNS = 8, 4
_LARGEST = 144
_LOST = (150, 146, 140)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Pictures of one prompt in one image. `uri` is None where none is left."""

    uri: str | None
    num_pictures: int
    num_lost: int
    tiny: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """`before` is None while there is one evaluation only."""

    change: PromptChange
    before: Strip | None
    after: Strip | None


def pairs(
    samples: Path,
    before: EvaluationRecord | None,
    latest: EvaluationRecord | None,
    found: Sequence[PromptChange],
) -> list[Pair]:
    """A pair for each prompt of `found`, in its order; prompts without a row on either sheet are left out."""
    old = _Sheet(samples / sheet_name(before)) if before else None
    new = _Sheet(samples / sheet_name(latest)) if latest else None
    made = []
    for change in found:
        left = old.strip(change.prompt) if old else None
        right = new.strip(change.prompt) if new else None
        if left or right:
            made.append(Pair(change=change, before=left, after=right))
    return made


class _Sheet:
    """One sheet, read once."""

    def __init__(self, path: Path) -> None:
        self._map = read_map(path)
        self._rows: dict[str, MappedRow] = {row.prompt: row for row in self._map.rows} if self._map else {}
        self._image: Image.Image | None = None
        if self._map is not None:
            with Image.open(path) as image:
                self._image = image.convert("RGB")

    def strip(self, prompt: str) -> Strip | None:
        row = self._rows.get(prompt)
        if row is None or self._map is None or self._image is None:
            return None
        pictures = cut(self._image, self._map, row)[:MAX_PICTURES]
        kept = [picture for picture in pictures if picture is not None]
        uri = _data_uri(_tiled(pictures, self._map), self._map.enlarged) if kept else None
        return Strip(uri=uri, num_pictures=len(pictures), num_lost=len(pictures) - len(kept), tiny=self._map.enlarged)


def _tiled(pictures: Sequence[Pixels | None], mapped: SheetMap) -> Image.Image:
    """COLUMNS pictures a row, without a border: the page cannot tell, but the eye can."""
    width, height = mapped.native if mapped.enlarged else mapped.cell
    scale = min(_LARGEST / max(width, height), 1.0)
    cell = (max(round(width * scale), 1), max(round(height * scale), 1))
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    gap = 1 if mapped.enlarged else 3
    canvas = np.zeros((rows * (cell[1] + gap) - gap, columns * (cell[0] + gap) - gap, 4), dtype=np.uint8)
    for index, picture in enumerate(pictures):
        y, x = (index // columns) * (cell[1] + gap), (index % columns) * (cell[0] + gap)
        canvas[y : y + cell[1], x : x + cell[0], 3] = 255
        canvas[y : y + cell[1], x : x + cell[0], :3] = _LOST if picture is None else _fitted(picture, cell)
    return Image.fromarray(canvas)


def _fitted(picture: Pixels, cell: tuple[int, int]) -> Pixels:
    """[H, W, 3] in the cell's size."""
    image = Image.fromarray(picture.transpose(1, 2, 0).copy())
    return np.asarray(image if image.size == cell else image.resize(cell, Image.Resampling.LANCZOS))


def _data_uri(image: Image.Image, tiny: bool) -> str:
    buffer = io.BytesIO()
    kind = "PNG" if tiny else "WEBP"
    image.save(buffer, kind, quality=82)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
