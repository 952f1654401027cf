"""The demo's job, shortened: it completes, and its run folder has everything a person looks for."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from daemons.recorder.sheetmap import cut, read_map
from digend.config.loader import load_job
from tests.e2e.cluster import JOB, ROOT, Cluster, environment
from tests.e2e.run import Run, assert_counted_once, assert_time_is_accounted_for
from tests.e2e.stock import drawn_by_the_stock_pipeline


def test_the_job_completes(short: Run) -> None:
    assert [(step.global_step, step.version) for step in short.steps] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [(each.label, each.global_step, each.num_samples) for each in short.evaluations] == [
        ("before", 0, 8),
        ("during", 2, 4),
        ("after", 4, 8),
    ]
    assert_counted_once(short, 4)


def test_the_run_folder_is_complete(short: Run, cluster: Cluster) -> None:
    overrides = (*cluster.short, "eval.every=2")
    assert load_job(short.folder / "job.toml") == load_job(JOB, overrides)
    assert [line["kind"] for line in short.metrics] == [
        "evaluation", "step", "step", "evaluation", "step", "step", "evaluation",
    ]  # fmt: skip
    for name in ("step-000000.png", "step-000002.png", "step-000004.png", "before-after.png"):
        with Image.open(short.folder / "samples" / name) as sheet:
            assert len(np.unique(np.asarray(sheet.convert("L")))) > 10, f"{name} shows nothing"
    page = (short.folder / "report.html").read_text("utf-8")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert sorted(path.name for path in (short.folder / "checkpoints").iterdir()) == ["step-000002", "step-000004"]


def test_tensorboard_reads_its_events(short: Run) -> None:
    board = EventAccumulator(str(short.folder / "tensorboard"))
    board.Reload()
    assert [event.step for event in board.Scalars("reward/mean")] == [1, 2, 3, 4]
    assert [event.step for event in board.Scalars("eval/reward")] == [0, 2, 4]


def test_the_summary_is_what_digenctl_shows(short: Run, cluster: Cluster) -> None:
    shown = cluster.ctl("show", "job", "short", "--json").stdout
    assert json.loads(shown) == short.summary


def test_the_last_step_has_its_figures(short: Run) -> None:
    last = short.summary["last_step"]
    line = next(line for line in reversed(short.metrics) if line["kind"] == "step")
    assert {name: line[name] for name in last} == last
    assert all(math.isfinite(value) for value in last.values())
    assert last["train/gradient_norm"] > 1e-4
    assert last["train/pairs"] == last["train/planned_pairs"] == 2 * 4 * 2
    assert 0 < last["reward/mean"] < 1
    assert short.summary["counters"]["samples"] == 4 * 8
    assert all(sum(row.values()) > 0 for row in short.summary["stage_seconds"].values())


def test_every_second_of_every_worker_has_a_name(short: Run) -> None:
    assert_time_is_accounted_for(short, "t/trainer/0", "t/generator/0", "t/generator/1")
    seconds = short.summary["stage_seconds"]
    assert seconds["t/trainer/0"]["update"] > 0
    assert seconds["t/generator/0"]["generate"] > 0


def test_the_trained_pipeline_draws_the_pictures_of_the_last_evaluation(short: Run) -> None:
    """With stock diffusers: nothing of digend is needed to use what it made."""
    last = short.evaluations[-1]
    pictures = drawn_by_the_stock_pipeline(
        Path(short.summary["pipeline"]), [(group.prompt, group.text, len(group.rewards)) for group in last.groups]
    )
    recorded = sheet_pictures(short.folder / "samples" / "step-000004.png")
    assert list(recorded) == [group.prompt for group in last.groups]
    for prompt, drawn in recorded.items():
        np.testing.assert_array_equal(drawn, pictures[prompt], err_msg=prompt)


def test_the_journal_replays_to_the_same_commands(short: Run, cluster: Cluster) -> None:
    """While the driver goes on using it."""
    done = subprocess.run(
        [sys.executable, "-m", "daemons.replay", str(cluster.journal)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "give the same commands" in done.stdout


def sheet_pictures(path: Path) -> dict[str, NDArray[np.uint8]]:
    """[K, 3, H, W] a prompt, cut out of a sheet."""
    mapped = read_map(path)
    assert mapped is not None
    with Image.open(path) as sheet:
        pictures = {row.prompt: cut(sheet, mapped, row) for row in mapped.rows}
    return {prompt: np.stack([each for each in row if each is not None]) for prompt, row in pictures.items()}
