"""A tracker that fails, hangs or is missing costs the run nothing, and says so once."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from daemons.recorder.archive import Archive
from daemons.trackers.aside import MAX_WAITING, Aside
from daemons.trackers.protocol import TrackedRun
from daemons.trackers.wandb_tracker import MISSING, is_installed
from digend.wire.records import Record
from tests.recorder.plausible import JOB_TOML, PictureBook, plausible_run
from tests.trackers import fake_wandb

RECORDS = plausible_run(num_steps=4, every=2, num_prompts=1)
WITH_WANDB = f'{JOB_TOML}\n[tracking]\nuse = ["jsonl", "wandb"]\n'
RUN = TrackedRun(job="j", name="n", folder=Path())


class Broken:
    """Fails at the second thing it is told."""

    def __init__(self) -> None:
        self.calls = 0
        self.release = threading.Event()

    def start(self, run: TrackedRun, past: Sequence[Record]) -> None:
        self.calls += 1

    def log(self, records: Sequence[Record]) -> None:
        self.calls += 1
        raise ConnectionError("no route\nto host")

    def image(self, name: str, path: Path, record: Record) -> None:
        self.calls += 1

    def finish(self, state: str) -> None:
        self.calls += 1


class Stuck(Broken):
    """Does not come back until it is released."""

    def log(self, records: Sequence[Record]) -> None:
        self.release.wait(60)


def test_a_failure_is_told_and_ends_it() -> None:
    inside = Broken()
    aside = Aside("w", inside)
    aside.start(RUN, [])
    for record in RECORDS[:5]:
        aside.log([record])
    aside.close(10)
    assert aside.trouble == "ConnectionError: no route to host"
    assert inside.calls == 2


def test_one_that_hangs_is_left_alone() -> None:
    inside = Stuck()
    aside = Aside("w", inside)
    try:
        for _ in range(MAX_WAITING + 5):
            aside.log([])
        assert "calls behind" in aside.trouble
        aside.close(0.01)
    finally:
        inside.release.set()


def test_without_wandb_the_run_is_written_and_the_pip_line_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemons.trackers.wandb_tracker.find_spec", lambda name: None)
    assert not is_installed()
    archive = Archive(tmp_path, PictureBook())
    archive.write(RECORDS[:-1], {"shapes-1": WITH_WANDB})
    for run in archive._runs.values():
        run.trackers.close(10)
    assert archive.troubles == (f"wandb of shapes-1: RuntimeError: {MISSING}",)
    assert archive.trackers_up == {"jsonl": True, "wandb": False}
    archive.write(RECORDS[-1:], {})
    archive.close()
    assert "went on without it" in (tmp_path / "shapes-1" / "report.html").read_text("utf-8")
    assert (tmp_path / "shapes-1" / "metrics.jsonl").read_text("utf-8").count("\n") == 7


def test_wandb_gets_what_the_run_folder_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb.runs.clear()
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb)
    archive = Archive(tmp_path, PictureBook())
    archive.write(RECORDS, {"shapes-1": WITH_WANDB})
    archive.close()
    run = fake_wandb.runs["shapes-1"]
    assert run.exit_code == 0
    assert run.options["config"]["training"]["global_steps"] > 0
    assert len([row for row in run.history if "reward/mean" in row]) == 4
    shown = [key for row in run.history for key, value in row.items() if isinstance(value, fake_wandb.Image)]
    assert shown == ["samples/before", "samples/during", "samples/after"]


def test_the_pip_line_names_the_extra() -> None:
    assert "pip install 'digend[wandb]'" in MISSING
