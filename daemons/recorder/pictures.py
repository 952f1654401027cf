"""Getting an evaluation's pictures from whoever made them, and the files they become.

Owns `samples/`. Knows no record stream. Invariant: it takes a few seconds at most and never fails for want
of a picture: what cannot be pulled is drawn as lost. A sheet that is there already is not overwritten by
one with fewer pictures of the same evaluation, so that a record written twice because of a kill costs
nothing.
"""

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from daemons.recorder.files import replace
from daemons.recorder.sheetmap import Pixels, SheetMap, read_map, to_png
from daemons.recorder.sheets import Row, draw_comparison, draw_frames, draw_sheet
from digend.telemetry.logs import logger
from digend.wire.records import EvalGroup, EvaluationRecord
from digend.wire.refs import BlobRef

_SMALL_BYTES = 3 * 128 * 128
_BUDGET_BYTES = 192 << 20
_ANIMATED_ROWS, _ANIMATED_COLUMNS, _FRAME_MS = 8, 4, 125

Film = NDArray[np.uint8]
"""[3, H, W] or [F, 3, H, W]"""

log = logger()


class PicturesLost(Exception):
    """The owner of a blob did not answer in time or no longer has it."""


class Puller(Protocol):
    """Reaches the blob servers. Raises `PicturesLost`, and nothing else."""

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Draws into the `samples` folder of one run."""

    folder: Path
    puller: Puller
    budget_s: float = 8.0
    clock: Callable[[], float] = time.monotonic

    def take(self, evaluation: EvaluationRecord) -> None:
        """Pull and draw one evaluation; after the last one also before against after. Raises OSError
        (disk).
        """
        path = self.folder / sheet_name(evaluation)
        shown = _shown(evaluation)
        pulled = self._pull(shown)
        films = [_films(group, count, pulled) for group, count in shown]
        rows = [_row(group, row) for (group, _), row in zip(shown, films, strict=True)]
        title = _title(evaluation, len(shown))
        image, mapped = draw_sheet(rows, title=title, source=_source(evaluation))
        if _num_drawn(read_map(path), mapped.source) < max(_num_drawn(mapped, mapped.source), 1):
            if any(film is not None and film.ndim == 4 for row in films for film in row):
                replace(path.with_suffix(".webp"), _animation(films))
                self._films(path.with_suffix(""), films)
            replace(path, to_png(image, mapped))  # last: where it is, the others are
        if evaluation.label == "after":
            self.compare(path)

    def _films(self, folder: Path, films: Sequence[Sequence[Film | None]]) -> None:
        """One animation a sample: `step-000010/PROMPT-SAMPLE.webp`, both counted from 0 as on the sheet."""
        for row, samples in enumerate(films[:_ANIMATED_ROWS]):
            for column, film in enumerate(samples[:_ANIMATED_COLUMNS]):
                if film is not None and film.ndim == 4:
                    replace(folder / f"{row}-{column}.webp", _animation([[film]]))

    def compare(self, after: Path) -> None:
        """Draw before-after.png where a sheet from before training is there."""
        comparison = draw_comparison(self.folder / "step-000000.png", after)
        if comparison is not None:
            replace(self.folder / "before-after.png", to_png(comparison))

    def _pull(self, shown: Sequence[tuple[EvalGroup, int]]) -> dict[tuple[str, int], Film]:
        deadline = self.clock() + self.budget_s
        wanted: dict[tuple[str, str], list[tuple[EvalGroup, int]]] = {}
        for group, count in shown:
            wanted.setdefault((group.blob.instance, group.blob.id), []).append((group, count))
        films: dict[tuple[str, int], Film] = {}
        lost: set[str] = set()
        for (instance, _), groups in wanted.items():
            left = deadline - self.clock()
            if instance in lost or left <= 0:
                continue
            try:
                films.update(self._pull_blob(groups, left))
            except PicturesLost as error:
                lost.add(instance)
                log.warning("pictures lost", owner=groups[0][0].blob.owner, error=str(error))
        return films

    def _pull_blob(self, groups: Sequence[tuple[EvalGroup, int]], left: float) -> dict[tuple[str, int], Film]:
        names = {
            f"{group.prompt}/{index}/pixels": (group.prompt, index) for group, count in groups for index in range(count)
        }
        tensors = self.puller.pull(groups[0][0].blob, list(names), left)
        return {names[name]: film for name, film in tensors.items() if name in names and _is_film(film)}


def sheet_name(evaluation: EvaluationRecord) -> str:
    """One sheet a global step; the evaluation after training replaces the one during it at the same step."""
    return f"step-{evaluation.global_step:06d}.png"


def _shown(evaluation: EvaluationRecord) -> list[tuple[EvalGroup, int]]:
    """Groups to draw and how many samples of each, within what is sensible to pull and to look at."""
    groups = evaluation.groups
    blobs = {group.blob.id: group.blob.num_bytes for group in groups}
    sample_bytes = max(sum(blobs.values()) // max(sum(len(group.rewards) for group in groups), 1), 1)
    columns, rows = (16, 64) if sample_bytes <= _SMALL_BYTES else (8, 24)
    columns = max(min(columns, _BUDGET_BYTES // sample_bytes), 1)
    rows = max(min(rows, _BUDGET_BYTES // (sample_bytes * columns)), 1)
    return [(group, min(len(group.rewards), columns)) for group in groups[:rows]]


def _films(group: EvalGroup, count: int, pulled: Mapping[tuple[str, int], Film]) -> list[Film | None]:
    return [pulled.get((group.prompt, index)) for index in range(count)]


def _row(group: EvalGroup, films: Sequence[Film | None]) -> Row:
    pictures = tuple(None if film is None else _still(film) for film in films)
    return Row(
        prompt=group.prompt,
        text=group.text or group.prompt,
        pictures=pictures,
        rewards=group.rewards[: len(films)],
    )


def _is_film(film: Film) -> bool:
    return film.dtype == np.uint8 and film.ndim in (3, 4) and film.shape[-3] == 3 and film.size > 0


def _still(film: Film) -> Pixels:
    """An image as it is; of a video its first, middle and last frame side by side."""
    if film.ndim == 3:
        return film
    return np.concatenate([film[0], film[len(film) // 2], film[-1]], axis=2)


def _frame(film: Film, index: int) -> Pixels:
    return film if film.ndim == 3 else film[min(index, len(film) - 1)]


def _animation(films: Sequence[Sequence[Film | None]]) -> bytes:
    chosen = [row[:_ANIMATED_COLUMNS] for row in films[:_ANIMATED_ROWS]]
    length = max(len(film) if film is not None and film.ndim == 4 else 1 for row in chosen for film in row)
    frames = [
        draw_frames([[None if film is None else _frame(film, index) for film in row] for row in chosen])
        for index in range(length)
    ]
    buffer = io.BytesIO()
    first: Image.Image = frames[0]
    first.save(buffer, "WEBP", save_all=True, append_images=frames[1:], duration=_FRAME_MS, loop=0, quality=85)
    return buffer.getvalue()


def _title(evaluation: EvaluationRecord, num_shown: int) -> str:
    some = "" if num_shown == len(evaluation.groups) else f", {num_shown} of {len(evaluation.groups)} prompts"
    when = f"{evaluation.global_step} global steps · policy version {evaluation.version}"
    return f"{evaluation.label} · {when}{some}"


def _source(evaluation: EvaluationRecord) -> str:
    head = f"{evaluation.label}/{evaluation.global_step}/{evaluation.incarnation}/{evaluation.version}"
    return "/".join([head, *sorted({group.blob.digest for group in evaluation.groups})])


def _num_drawn(mapped: SheetMap | None, source: str) -> int:
    if mapped is None or mapped.source != source:
        return 0
    return sum(corner is not None for row in mapped.rows for corner in row.corners)
