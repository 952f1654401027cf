"""The map a sheet of samples carries inside its PNG: which sample is where, and its reward.

Owns the map and cutting pictures out by it. Knows no drawing. Invariant: whoever has the PNG has the
pictures, so no second copy of the pixels is kept; what was enlarged by a whole factor is cut out without
loss.
"""

import dataclasses
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from pydantic import TypeAdapter, ValidationError

Pixels = NDArray[np.uint8]
"""[3, H, W]"""

_KEY = "digend"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedRow:
    """Where a prompt's pictures are: upper left corners in the sheet, None where the picture was lost."""

    prompt: str
    text: str
    rewards: tuple[float | None, ...]
    corners: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetMap:
    """`cell` and `native` are (width, height): as drawn, and as sampled. `source` names the evaluation."""

    source: str
    title: str
    cell: tuple[int, int]
    native: tuple[int, int]
    rows: tuple[MappedRow, ...]

    @property
    def enlarged(self) -> bool:
        return self.cell[0] > self.native[0]


_MAP = TypeAdapter(SheetMap)


def to_png(image: Image.Image, mapped: SheetMap | None = None) -> bytes:
    """PNG bytes, the map inside."""
    info = PngInfo()
    if mapped is not None:
        info.add_itxt(_KEY, _MAP.dump_json(_with_finite_rewards(mapped)).decode())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def read_map(path: Path) -> SheetMap | None:
    """The map inside a sheet; None where there is no such file or it is no sheet of this version."""
    try:
        with Image.open(path) as image:
            text = image.info.get(_KEY)
        return _MAP.validate_json(text) if isinstance(text, str) else None
    except (OSError, ValidationError):
        return None


def cut(sheet: Image.Image, mapped: SheetMap, row: MappedRow) -> list[Pixels | None]:
    """A row's pictures [3, H, W], out of the sheet; as sampled where they had been enlarged, else as drawn."""
    width, height = mapped.cell
    pictures: list[Pixels | None] = []
    for corner in row.corners:
        if corner is None:
            pictures.append(None)
            continue
        picture = sheet.crop((*corner, corner[0] + width, corner[1] + height)).convert("RGB")
        if mapped.enlarged:
            picture = picture.resize(mapped.native, Image.Resampling.NEAREST)
        pictures.append(np.asarray(picture).transpose(2, 0, 1))
    return pictures


def mean(rewards: Sequence[float | None]) -> float | None:
    """Over what was scored; None where nothing was."""
    known = [reward for reward in rewards if reward is not None and math.isfinite(reward)]
    return sum(known) / len(known) if known else None


def _with_finite_rewards(mapped: SheetMap) -> SheetMap:
    rows = tuple(
        dataclasses.replace(row, rewards=tuple(mean([reward]) for reward in row.rewards)) for row in mapped.rows
    )
    return dataclasses.replace(mapped, rows=rows)
