"""examples/slurm: the batch script starts a cluster, runs a job and stops all of it, under a fake of Slurm."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from digend.wire.records import TaskRecord
from tests.e2e import fake_slurm
from tests.e2e.cluster import JOB, PATIENCE_S, ROOT, environment, short_job, wait_until
from tests.e2e.run import Run, assert_counted_once

SCRIPT = ROOT / "examples" / "slurm" / "digend.sbatch"
PROGRAMS = {"digend": (sys.executable, "-m", "daemons.main"), "digenctl": (sys.executable, "-m", "clients")}


@contextmanager
def batch(folder: Path, *overrides: str) -> Iterator["subprocess.Popen[str]"]:
    """The script, run as Slurm does on the first host: one of component 0, two of component 1."""
    programs = fake_slurm.install(folder / "bin", PROGRAMS) if not (folder / "bin").exists() else folder / "bin"
    quiet = environment(PYTHONPATH=str(ROOT), CLUSTER_HOME=str(folder / "home"))
    quiet["PATH"] = f"{programs}:{quiet['PATH']}"
    given = (*short_job(folder), "eval.enabled=false", "checkpoint.every=1", *overrides)
    words = ["bash", str(SCRIPT), str(JOB), "--id", "slurm", *(word for each in given for word in ("--set", each))]
    process = subprocess.Popen(
        words, cwd=ROOT, env={**quiet, **fake_slurm.environment(ROOT, (1, 2))},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        (folder / "home" / "stop").touch()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.matrix
def test_a_job_from_submit_to_report(tmp_path: Path) -> None:
    with batch(tmp_path, "training.global_steps=2") as script:
        said, _ = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 0, said
    assert "job slurm completed at global step 2" in said
    home = tmp_path / "home"
    run = Run(home / "runs" / "slurm")
    assert_counted_once(run, 2)
    workers = {task.worker for task in run.bodies(TaskRecord)}
    assert workers == {"head/trainer/0", "worker-1-0/generator/0", "worker-1-1/generator/0"}
    assert {path.name for path in home.glob("*.ended")} == {"head.ended", "worker-1-0.ended", "worker-1-1.ended"}
    assert (home / "head.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.matrix
def test_the_next_allocation_goes_on_where_this_one_was_stopped(tmp_path: Path) -> None:
    """Slurm sends SIGTERM to the script before the time is over."""
    long = "training.global_steps=20"
    home = tmp_path / "home"
    with batch(tmp_path, long) as script:
        wait_until(lambda: len(list(home.glob("runs/slurm/checkpoints/step-*"))) >= 2, "there are checkpoints")
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=PATIENCE_S)
        assert script.returncode == 128 + signal.SIGTERM
    with batch(tmp_path, long) as script:
        said, _ = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 0, said
    assert_counted_once(Run(home / "runs" / "slurm"), 20)


def test_a_plain_job_is_refused(tmp_path: Path) -> None:
    plain = {**environment(), "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", str(SCRIPT)], env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "this needs a heterogeneous job" in done.stderr
    assert list(tmp_path.iterdir()) == []
