"""Run folders: what is written, and that no crash, repeat, hole or full disk changes it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemons.recorder.archive import Archive, Hole, Locked, Unwritable
from digend.wire.records import Record
from tests.recorder.plausible import JOB_TOML, PictureBook, plausible_run

JOB = "shapes-1"
RECORDS = plausible_run(num_steps=3, every=2, num_prompts=2)
COMPARED = (
    "events.jsonl",
    "metrics.jsonl",
    "summary.json",
    "job.toml",
    "tensorboard/events.out.tfevents.0000000000.digend",
)
PICTURES = ("samples/step-000000.png", "samples/step-000002.png", "samples/step-000003.png", "samples/before-after.png")


def write_all(folder: Path, records: list[Record], *, batch: int = 16, puller: PictureBook | None = None) -> None:
    archive = Archive(folder, puller or PictureBook())
    try:
        archive.catch_up()
        since = archive.wanted().get(JOB, 0)
        for start in range(since, len(records), batch):
            archive.write(records[start : start + batch], {JOB: JOB_TOML} if start == 0 else {})
    finally:
        archive.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    write_all(folder, RECORDS)
    return folder / JOB


def assert_same(folder: Path, reference: Path) -> None:
    for name in (*COMPARED, *PICTURES, "report.html", "timeline.json"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    assert not list(folder.rglob("*.part"))


def test_a_run_folder_has_everything(reference: Path) -> None:
    for name in (*COMPARED, *PICTURES, "report.html", "timeline.json"):
        assert (reference / name).stat().st_size > 0, name
    assert (reference / "job.toml").read_text() == JOB_TOML
    events = [json.loads(line) for line in (reference / "events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(RECORDS)))
    assert {"seq", "at_ns", "kind"} <= events[0].keys()
    summary = json.loads((reference / "summary.json").read_text())
    assert summary["schema_version"] == 1
    assert summary["job"]["state"] == "completed"
    assert summary["num_records"] == len(RECORDS)
    assert summary["job"]["num_global_steps"] == 22


def test_metrics_have_a_line_a_step_and_an_evaluation(reference: Path) -> None:
    lines = [json.loads(line) for line in (reference / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["global_step"]) for line in lines] == [
        ("evaluation", 0),
        ("step", 1),
        ("step", 2),
        ("evaluation", 2),
        ("step", 3),
        ("evaluation", 3),
    ]
    assert {"reward/mean", "train/gradient_norm", "component/accuracy"} <= lines[1].keys()
    assert {"eval/accuracy", "eval/diversity", "label"} <= lines[0].keys()


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batches_do_not_matter(tmp_path: Path, reference: Path, batch: int) -> None:
    write_all(tmp_path, RECORDS, batch=batch)
    assert_same(tmp_path / JOB, reference)


def crash_points(events: bytes) -> list[int]:
    """Around the end of every third line and in its middle."""
    points, at = [], 0
    for number, line in enumerate(events.splitlines(keepends=True)):
        if number % 3 == 0:
            points += [at, at + 1, at + len(line) // 2, at + len(line) - 1]
        at += len(line)
    return [*points, len(events)]


def test_killed_anywhere_and_resumed_the_folder_is_the_same(tmp_path: Path, reference: Path) -> None:
    events = (reference / "events.jsonl").read_bytes()
    for size in crash_points(events)[:: 1 if len(events) < 20_000 else 4]:
        folder = tmp_path / str(size)
        (folder / JOB).mkdir(parents=True)
        (folder / JOB / "job.toml").write_text(JOB_TOML)
        (folder / JOB / "events.jsonl").write_bytes(events[:size])
        (folder / JOB / "metrics.jsonl").write_bytes((reference / "metrics.jsonl").read_bytes()[: size // 9])
        shutil.copytree(reference / "samples", folder / JOB / "samples")
        write_all(folder, RECORDS, batch=40)
        assert_same(folder / JOB, reference)
        shutil.rmtree(folder)


def test_figures_ahead_of_the_events_are_taken_back(tmp_path: Path, reference: Path) -> None:
    shutil.copytree(reference, tmp_path / JOB)
    events = (reference / "events.jsonl").read_bytes()
    (tmp_path / JOB / "events.jsonl").write_bytes(events[: len(events) // 3])
    archive = Archive(tmp_path, PictureBook())
    assert archive.catch_up() == [JOB]
    archive.close()
    seen = json.loads((tmp_path / JOB / "summary.json").read_text())["num_records"]
    lines = (tmp_path / JOB / "metrics.jsonl").read_text().splitlines()
    assert 0 < len(lines) < 6
    assert all(json.loads(line)["seq"] < seen for line in lines)


def test_what_comes_twice_is_ignored(tmp_path: Path, reference: Path) -> None:
    archive = Archive(tmp_path, PictureBook())
    for start in range(0, len(RECORDS), 10):
        overlapping = RECORDS[max(start - 7, 0) : start + 10]
        assert archive.write(overlapping, {JOB: JOB_TOML}) == {JOB: min(start + 10, len(RECORDS))}
        assert archive.write(overlapping, {JOB: JOB_TOML}) == {JOB: min(start + 10, len(RECORDS))}
    archive.close()
    assert_same(tmp_path / JOB, reference)


def test_a_hole_is_refused_and_nothing_of_it_written(tmp_path: Path) -> None:
    archive = Archive(tmp_path, PictureBook())
    archive.write(RECORDS[:5], {JOB: JOB_TOML})
    for records in (RECORDS[6:8], [*RECORDS[5:7], *RECORDS[8:9]]):
        with pytest.raises(Hole, match="wants record 5"):
            archive.write(records, {})
    assert archive.wanted() == {JOB: 5}
    archive.close()


def test_jobs_are_kept_apart(tmp_path: Path) -> None:
    other = plausible_run(job="other", seed=3, num_steps=2, num_prompts=1)
    mixed = [record for pair in zip(RECORDS[:40], other[:40], strict=True) for record in pair]
    archive = Archive(tmp_path, PictureBook())
    assert archive.write(mixed, {}) == {JOB: 40, "other": 40}
    assert archive.wanted() == {JOB: 40, "other": 40}
    archive.close()


def test_a_job_id_that_is_no_folder_name_is_refused(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "runs", PictureBook())
    with pytest.raises(ValueError, match="run folder"):
        archive.write(plausible_run(job="../outside", num_steps=1, num_prompts=1)[:3], {})
    archive.close()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_folder_deleted_in_mid_run_is_asked_for_from_the_start(tmp_path: Path) -> None:
    archive = Archive(tmp_path, PictureBook())
    archive.write(RECORDS[:20], {JOB: JOB_TOML})
    shutil.rmtree(tmp_path / JOB)
    with pytest.raises(OSError):
        archive.write(RECORDS[20:30], {})
    with pytest.raises(Hole, match="wants record 0"):
        archive.write(RECORDS[20:30], {})
    assert archive.wanted() == {JOB: 0}
    assert archive.write(RECORDS[:30], {JOB: JOB_TOML}) == {JOB: 30}
    archive.close()


def test_two_recorders_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Archive(tmp_path, PictureBook())
    with pytest.raises(Locked, match="another recorder"):
        Archive(tmp_path, PictureBook())
    first.close()
    Archive(tmp_path, PictureBook()).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unwritable, match=f"runs: {tmp_path}/file/runs cannot be written: Not a directory"):
        Archive(tmp_path / "file" / "runs", PictureBook())


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from daemons.recorder.archive import Archive
from tests.recorder.plausible import JOB_TOML, PictureBook
from tests.recorder.test_archive import JOB, RECORDS

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
archive = Archive(Path(sys.argv[1]), PictureBook())
failures, limit, start = 0, 300, 0
while start < len(RECORDS):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        archive.write(RECORDS[start : start + 16], {JOB: JOB_TOML} if start == 0 else {})
    except OSError as error:
        failures += 1
        limit += 700 if limit < 60_000 else 40_000
        known = archive.wanted().get(JOB, 0)
        assert known >= start, (known, start)
    else:
        start += 16
print(failures)
"""


def test_a_full_disk_at_any_size_ends_in_the_same_folder(tmp_path: Path, reference: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
    assert_same(tmp_path / JOB, reference)
