"""Every tracker passes one suite: what was logged is there once, under the names of figures, also after a restart."""

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from daemons.trackers.files import jsonl, tensorboard
from daemons.trackers.protocol import TrackedRun, Tracker, is_logged
from daemons.trackers.wandb_tracker import WandbTracker
from digend.config.tracking import TrackingConfig
from digend.telemetry.figures import figures
from digend.wire.records import Record, StepRecord
from tests.recorder.plausible import plausible_run
from tests.trackers import fake_wandb

RECORDS = [record for record in plausible_run(num_steps=8, every=4, num_prompts=1) if is_logged(record)]
HAS_WANDB = importlib.util.find_spec("wandb") is not None


@dataclass
class Kind:
    """`read` gives mean rewards by global step, as the tracker's own reader has them."""

    make: Callable[[], Tracker]
    read: Callable[[Path], dict[int, float]]


def _from_jsonl(folder: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return {line["global_step"]: line["reward/mean"] for line in lines if line["kind"] == "step"}


def _from_tensorboard(folder: Path) -> dict[int, float]:
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    return {event.step: event.value for event in board.Scalars("reward/mean")}


def _from_fake(folder: Path) -> dict[int, float]:
    found = [row for row in fake_wandb.runs[folder.name].history if "reward/mean" in row]
    assert len({row["_step"] for row in found}) == len(found), "a record was logged twice"
    return {row["global_step"]: row["reward/mean"] for row in found}


def _from_wandb(folder: Path) -> dict[int, float]:
    """Of all offline runs of the folder: each life of the recorder writes one, a sync joins them by id and step."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its service writes behind
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _logged(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
                found.setdefault(record.history.step.num, {}).update(row)
    return {row["global_step"]: row["reward/mean"] for row in found.values() if "reward/mean" in row}


def _logged(content: bytes) -> Iterator[bytes]:
    """Messages of a .wandb file: LevelDB's log format behind a header of 7 bytes."""
    at, message = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, part = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        message += content[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):  # whole, or the last of several parts
            yield message
            message = b""


def _wandb() -> Tracker:
    return WandbTracker(TrackingConfig.model_validate({"use": ["wandb"], "mode": "offline"}))


KINDS = {
    "jsonl": Kind(jsonl, _from_jsonl),
    "tensorboard": Kind(tensorboard, _from_tensorboard),
    "fake wandb": Kind(_wandb, _from_fake),
    "wandb": Kind(_wandb, _from_wandb),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    if request.param == "wandb" and not HAS_WANDB:
        pytest.skip("wandb is an extra and not installed")
    if request.param == "fake wandb":
        fake_wandb.runs.clear()
        monkeypatch.setitem(sys.modules, "wandb", fake_wandb)
    return KINDS[request.param]


def _run(folder: Path) -> TrackedRun:
    folder.mkdir(exist_ok=True)
    return TrackedRun(job=folder.name, name="shapes", folder=folder, config={"seed": 1})


def _expected(records: list[Record]) -> dict[int, object]:
    steps = [record.body for record in records if isinstance(record.body, StepRecord)]
    return {step.global_step: pytest.approx(figures(step)["reward/mean"], rel=1e-6) for step in steps}


def test_figures_are_there_by_global_step(kind: Kind, tmp_path: Path) -> None:
    tracker, folder = kind.make(), tmp_path / "a"
    tracker.start(_run(folder), [])
    for record in RECORDS:
        tracker.log([record])
    tracker.finish("completed")
    assert kind.read(folder) == _expected(RECORDS)


def test_a_recorder_that_starts_again_logs_nothing_twice(kind: Kind, tmp_path: Path) -> None:
    folder, half = tmp_path / "b", len(RECORDS) // 2
    first = kind.make()
    first.start(_run(folder), [])
    first.log(RECORDS[:half])
    first.finish("failed")
    second = kind.make()
    second.start(_run(folder), RECORDS[: half + 2])
    second.log(RECORDS[half + 2 :])
    second.finish("completed")
    assert kind.read(folder) == _expected(RECORDS)


def test_what_the_past_has_is_there_without_being_logged(kind: Kind, tmp_path: Path) -> None:
    tracker, folder = kind.make(), tmp_path / "c"
    tracker.start(_run(folder), RECORDS)
    tracker.finish("completed")
    assert kind.read(folder) == _expected(RECORDS)


def test_figures_that_are_not_finite_break_nothing(kind: Kind, tmp_path: Path) -> None:
    poor = [record for record in plausible_run(num_steps=14, num_prompts=1) if is_logged(record)]
    assert any(not math.isfinite(value) for record in poor for value in figures(record.body).values())
    tracker, folder = kind.make(), tmp_path / "d"
    tracker.start(_run(folder), [])
    tracker.log(poor)
    tracker.finish("completed")
    assert kind.read(folder) == _expected(poor)


def test_a_sheet_of_samples_can_be_shown(kind: Kind, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    Image.new("RGB", (8, 8)).save(sheet)
    tracker, folder = kind.make(), tmp_path / "e"
    tracker.start(_run(folder), [])
    tracker.log(RECORDS[:2])
    tracker.image("before", sheet, RECORDS[1])
    tracker.log(RECORDS[2:])
    tracker.finish("completed")
    assert kind.read(folder) == _expected(RECORDS)
