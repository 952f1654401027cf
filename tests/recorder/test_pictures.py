"""Sheets of samples: what is on them, and what happens when a picture cannot be had."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from daemons.recorder.pictures import Film, Pictures, PicturesLost, Puller, sheet_name
from daemons.recorder.sheetmap import SheetMap, cut, read_map
from daemons.recorder.sheets import cell_size
from digend.wire.records import EvalGroup, EvaluationRecord
from digend.wire.refs import BlobRef
from tests.recorder.plausible import PictureBook, plausible_run

EVALUATIONS = [
    record.body
    for record in plausible_run(num_steps=4, every=2, num_prompts=6)
    if isinstance(record.body, EvaluationRecord)
]
BEFORE, DURING, AFTER = EVALUATIONS


def drawer(folder: Path, puller: Puller) -> Pictures:
    """With a clock that stands still."""
    return Pictures(folder=folder, puller=puller, clock=Clock())


def mapped(path: Path) -> SheetMap:
    found = read_map(path)
    assert found is not None
    return found


def test_a_sheet_has_a_row_a_prompt_and_the_pictures_come_out_as_they_went_in(tmp_path: Path) -> None:
    book = PictureBook()
    drawer(tmp_path, book).take(BEFORE)
    sheet = mapped(tmp_path / "step-000000.png")
    assert (sheet.cell, sheet.native) == ((64, 64), (16, 16))
    assert [row.text for row in sheet.rows] == [group.text for group in BEFORE.groups]
    with Image.open(tmp_path / "step-000000.png") as image:
        assert image.size == (16 + 232 + 8 * 68 + 16, 16 + 28 + 6 * 83 + 16)
        for group, row in zip(BEFORE.groups, sheet.rows, strict=True):
            names = [f"{group.prompt}/{index}/pixels" for index in range(8)]
            expected = book.pull(group.blob, names, 1.0)
            for name, picture in zip(names, cut(image, sheet, row), strict=True):
                assert picture is not None
                np.testing.assert_array_equal(picture, expected[name])


def test_before_and_after_are_side_by_side(tmp_path: Path) -> None:
    pictures = drawer(tmp_path, PictureBook())
    pictures.take(BEFORE)
    pictures.take(DURING)
    assert not (tmp_path / "before-after.png").exists()
    pictures.take(AFTER)
    with Image.open(tmp_path / "before-after.png") as image:
        left, middle = 16 + 232, 16 + 232 + 8 * 68 + 32
        assert image.size == (middle + 8 * 68 + 16, 16 + 28 + 6 * 72 + 16)
        old, new = mapped(tmp_path / "step-000000.png"), mapped(tmp_path / "step-000004.png")
        for x, name, sheet in ((left, "step-000000.png", old), (middle, "step-000004.png", new)):
            with Image.open(tmp_path / name) as source:
                corner = sheet.rows[0].corners[0]
                assert corner is not None
                expected = source.crop((*corner, corner[0] + 64, corner[1] + 64))
                assert image.crop((x, 44, x + 64, 108)).tobytes() == expected.tobytes()


def test_a_kill_between_the_last_sheet_and_the_comparison_costs_nothing(tmp_path: Path) -> None:
    pictures = drawer(tmp_path, PictureBook())
    for evaluation in EVALUATIONS:
        pictures.take(evaluation)
    comparison = (tmp_path / "before-after.png").read_bytes()
    (tmp_path / "before-after.png").unlink()
    pictures.take(AFTER)
    assert (tmp_path / "before-after.png").read_bytes() == comparison


def test_pictures_of_a_dead_owner_are_drawn_as_lost(tmp_path: Path) -> None:
    book = PictureBook(lost=["instance-local/generator/1"])
    drawer(tmp_path, book).take(BEFORE)
    rows = mapped(tmp_path / "step-000000.png").rows
    assert [all(corner is None for corner in row.corners) for row in rows] == [False, True] * 3
    assert book.num_pulls == 4, "an owner that did not answer once is not waited for again"


def test_a_sheet_without_any_picture_is_drawn_too(tmp_path: Path) -> None:
    drawer(tmp_path, Nobody()).take(BEFORE)
    assert len(mapped(tmp_path / "step-000000.png").rows) == 6


def test_a_record_that_comes_again_after_its_pictures_went_keeps_the_sheet(tmp_path: Path) -> None:
    drawer(tmp_path, PictureBook()).take(BEFORE)
    kept = (tmp_path / "step-000000.png").read_bytes()
    drawer(tmp_path, Nobody()).take(BEFORE)
    assert (tmp_path / "step-000000.png").read_bytes() == kept


def test_another_evaluation_of_the_same_step_replaces_the_sheet(tmp_path: Path) -> None:
    drawer(tmp_path, PictureBook()).take(BEFORE)
    again = _replaced(BEFORE, incarnation=1)
    drawer(tmp_path, Nobody()).take(again)
    assert all(corner is None for row in mapped(tmp_path / "step-000000.png").rows for corner in row.corners)


def test_the_time_for_pictures_is_bounded(tmp_path: Path) -> None:
    clock = Clock()
    slow = Slow(clock)
    Pictures(folder=tmp_path, puller=slow, budget_s=5.0, clock=clock).take(BEFORE)
    assert slow.asked == [5.0, 3.0, 1.0]
    drawn = [row.corners[0] is not None for row in mapped(tmp_path / "step-000000.png").rows]
    assert drawn == [True, True, True, False, False, False]


def test_videos_show_first_middle_and_last_frame_and_move_beside_it(tmp_path: Path) -> None:
    book = PictureBook(num_frames=5)
    drawer(tmp_path, book).take(BEFORE)
    sheet = mapped(tmp_path / "step-000000.png")
    with Image.open(tmp_path / "step-000000.png") as image:
        first = cut(image, sheet, sheet.rows[0])[0]
    film = book.pull(BEFORE.groups[0].blob, ["p000/0/pixels"], 1.0)["p000/0/pixels"]
    assert first is not None
    np.testing.assert_array_equal(first, np.concatenate([film[0], film[2], film[4]], axis=2))
    with Image.open(tmp_path / "step-000000.webp") as animation:
        assert getattr(animation, "n_frames", 1) == 5
        assert animation.size == (4 * 68 + 4, 6 * 68 + 4)
    single = sorted(path.name for path in (tmp_path / "step-000000").iterdir())
    assert single == [f"{row}-{column}.webp" for row in range(6) for column in range(4)]
    with Image.open(tmp_path / "step-000000" / "3-1.webp") as animation:
        assert getattr(animation, "n_frames", 1) == 5


def test_large_pictures_are_fewer_and_smaller(tmp_path: Path) -> None:
    groups = tuple(
        EvalGroup(
            prompt=f"p{index}",
            text="large",
            blob=BlobRef(owner="o", instance="i", id=f"0-{index}", num_bytes=16 * 3 * 600 * 600, digest="d"),
            rewards=(0.5,) * 16,
        )
        for index in range(40)
    )
    drawer(tmp_path, Plain()).take(_replaced(BEFORE, groups=groups))
    sheet = mapped(tmp_path / "step-000000.png")
    assert (sheet.cell, sheet.native) == ((256, 256), (600, 600))
    assert len(sheet.rows) == 23
    assert "23 of 40 prompts" in sheet.title
    assert {len(row.corners) for row in sheet.rows} == {8}


def test_what_is_no_picture_is_lost(tmp_path: Path) -> None:
    drawer(tmp_path, Odd()).take(BEFORE)
    rows = mapped(tmp_path / "step-000000.png").rows
    assert all(corner is None for row in rows for corner in row.corners)


@pytest.mark.parametrize(
    ("size", "cell"),
    [
        ((16, 16), (64, 64)),
        ((24, 16), (72, 48)),
        ((64, 64), (64, 64)),
        ((256, 128), (256, 128)),
        ((1024, 512), (256, 128)),
    ],
)
def test_cell_sizes(size: tuple[int, int], cell: tuple[int, int]) -> None:
    assert cell_size(*size) == cell


def test_names_sort_by_step() -> None:
    assert [sheet_name(evaluation) for evaluation in EVALUATIONS] == [
        "step-000000.png",
        "step-000002.png",
        "step-000004.png",
    ]


class Nobody:
    """Every owner is gone."""

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        raise PicturesLost("gone")


class Odd:
    """Tensors of the wrong type and shape."""

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        odd = [np.zeros((3, 4, 4), dtype=np.float32), np.zeros((4, 4), dtype=np.uint8), np.zeros((3, 0, 4), np.uint8)]
        return {name: odd[index % 3] for index, name in enumerate(names)}  # type: ignore[misc]


class Plain:
    """Large pictures of one colour."""

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        return {name: np.full((3, 600, 600), 90, dtype=np.uint8) for name in names}


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow(PictureBook):
    """Two seconds a pull."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.asked: list[float] = []

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        self.asked.append(timeout_s)
        self._clock.now_s += 2.0
        return super().pull(ref, names, timeout_s)


def _replaced(
    evaluation: EvaluationRecord, *, incarnation: int = 0, groups: tuple[EvalGroup, ...] | None = None
) -> EvaluationRecord:
    return EvaluationRecord(
        global_step=evaluation.global_step,
        version=evaluation.version,
        incarnation=incarnation,
        label=evaluation.label,
        metrics=evaluation.metrics,
        num_samples=evaluation.num_samples,
        seconds=evaluation.seconds,
        groups=groups or evaluation.groups,
    )
