"""TensorBoard reads what we write, and needs neither torch nor tensorflow for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from daemons.recorder.archive import Archive
from digend.telemetry.figures import figures
from digend.wire.records import StepRecord
from tests.recorder.plausible import JOB_TOML, PictureBook, plausible_run

RECORDS = plausible_run(num_steps=14, every=7, num_prompts=1)


def test_every_finite_figure_can_be_read_back(tmp_path: Path) -> None:
    archive = Archive(tmp_path, PictureBook())
    archive.write(RECORDS, {"shapes-1": JOB_TOML})
    archive.close()
    board = EventAccumulator(str(tmp_path / "shapes-1" / "tensorboard"))
    board.Reload()
    steps = [record for record in RECORDS if isinstance(record.body, StepRecord)]
    read = {event.step: (event.value, event.wall_time) for event in board.Scalars("reward/mean")}
    assert list(read) == list(range(1, 15))
    for record in steps:
        value, wall_time = read[record.body.global_step]  # type: ignore[union-attr]
        assert value == pytest.approx(figures(record.body)["reward/mean"], rel=1e-6)
        assert wall_time == pytest.approx(record.at_ns / 1e9, abs=1e-3)
    assert [event.step for event in board.Scalars("eval/accuracy")] == [0, 7, 14]
    assert 13 not in [event.step for event in board.Scalars("train/gradient_norm")]


def test_the_recorder_imports_neither_torch_nor_tensorflow() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['tensorflow'] = None\n"
        "import daemons.recorder.main\n"
        "print([name for name in ('torch', 'tensorflow', 'diffusers') if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
