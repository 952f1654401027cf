"""digenctl as a process of its own, and a fake driver with a job that runs and one that failed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from digend.wire import records as r
from digend.wire.records import Record
from digend.wire.views import QueueItem
from tests.clients.fake_driver import Canned, FakeDriver, job_view, node_view

ROOT = Path(__file__).parents[2]
Digenctl = Callable[..., "subprocess.CompletedProcess[str]"]


def digenctl_process(*args: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs digenctl in `cwd`; nothing of the caller's environment tells it where a driver is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DIGEND_")}
    return subprocess.run(
        [sys.executable, "-m", "clients.main", *args],
        cwd=cwd,
        env={
            **clean,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            "DIGEND_ETC": str(cwd / "etc"),
            "XDG_CONFIG_HOME": str(cwd / "home"),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def digenctl(tmp_path: Path) -> Digenctl:
    def run(*args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return digenctl_process(*args, cwd=tmp_path, **environ)

    return run


@pytest.fixture
def canned() -> Canned:
    running, failed = (
        job_view("shapes-002", "running", submitted_ns=20),
        job_view("other-001", "failed", submitted_ns=10),
    )
    item = QueueItem(
        queue="uq", job="shapes-002", rollout=7, micro_batch=3, version=7, age_s=1.25, reason="waits for the trainer"
    )
    return Canned(
        jobs={"other-001": failed, "shapes-002": running},
        nodes=(node_view("box/generator/0"), node_view("box/trainer/0", "idle")),
        items=(item,),
    )


@pytest.fixture
def driver(tmp_path: Path, canned: Canned) -> Iterator[FakeDriver]:
    (tmp_path / ".digend").mkdir()
    with FakeDriver(tmp_path / ".digend", canned) as fake:
        yield fake


@pytest.fixture
def story() -> list[Record]:
    """The records of a job of two global steps."""
    step = r.StepRecord(
        global_step=1,
        version=1,
        incarnation=0,
        seconds=5.9,
        reward_mean=0.612,
        reward_std=0.1,
        components={},
        num_samples=144,
        num_masked=1,
        num_selected=143,
        num_groups=6,
        num_dropped_groups=0,
        num_zero_std_groups=0,
        z0=432,
        z=429,
        loss=0.0,
        clip_fraction=0.2,
        ratio_mean=1.0,
        max_abs_log_ratio=0.0,
        first_max_abs_log_ratio=0.0,
        kl=0.0,
        gradient_norm=0.5,
        learning_rate=3e-4,
        stale_micro_batches=0,
        assisted_micro_batches=0,
    )
    before = r.EvaluationRecord(
        global_step=0,
        version=0,
        incarnation=0,
        label="before",
        metrics={"accuracy": 0.736},
        num_samples=576,
        seconds=12.3,
        groups=(),
    )
    bodies: list[r.RecordBody] = [
        r.JobState(state="running"),
        before,
        r.Decision(strategy="never", answer="WAIT", pending=1, ready=0),
        step,
        r.WorkerState(worker="box/generator/0", role="generator", state="lost", reason="no heartbeat for 15 s"),
        r.RestartRecord(incarnation=1, global_step=0, reason="trainer lost"),
        r.CheckpointRecord(global_step=2, version=2, incarnation=1, path="/runs/x/2", digest="d", pipeline=None),
        r.Notice(level="warning", message="group dropped", details={"prompt": "p3"}),
        r.JobState(state="completed"),
    ]
    return [Record(job="done-001", seq=seq, at_ns=seq, body=body) for seq, body in enumerate(bodies)]
