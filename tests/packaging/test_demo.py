"""What scripts/demo makes of its options and of a job's outcome, and that clusters of demos stay apart and end."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from digend.config.loader import load_job, load_node
from scripts import demo_cluster, run_demo
from scripts.demo_cluster import DemoFailed, free_runs_folder, running, write_node
from tests.packaging.conftest import ROOT

UP = """
import pathlib, signal, sys
ended, node, ready = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[4])
signal.signal(signal.SIGTERM, lambda *_: (ended.touch(), sys.exit(0)))
ready.touch()
signal.pause()
"""
"""A `digend up` that only says that it is ready, and waits to be stopped."""


def detail(**changes: Any) -> dict[str, Any]:
    """What `digenctl show job --json` has that the demo reads."""
    before = {"reward": 0.618, "shapes_both.accuracy": 0.736, "shapes_independent": 0.737, "diversity": None}
    after = {"reward": 0.727, "shapes_both.accuracy": 0.875, "shapes_independent": 0.87, "diversity": None}
    return {
        "job": {"id": "shapes-flow-grpo-001", "global_step": 22},
        "seconds": 131.4,
        "evaluations": [{"label": "before", "metrics": before}, {"label": "after", "metrics": after}],
        "pipeline": None,
        "num_records": 7,
    } | changes


def test_the_last_line() -> None:
    metrics = "accuracy 0.736 -> 0.875, independent 0.737 -> 0.870"
    line = f"demo: {metrics}, 22 global steps in 131 s, report runs/ID/report.html"
    assert run_demo.headline(detail(), Path("runs/ID/report.html")) == line


def test_the_last_line_of_another_job_has_its_reward() -> None:
    evaluations = [{"label": label, "metrics": {"reward": 0.5}} for label in ("before", "after")]
    line = run_demo.headline(detail(evaluations=evaluations), Path("r.html"))
    assert line == "demo: reward 0.500 -> 0.500, 22 global steps in 131 s, report r.html"


def test_the_last_line_without_evaluations() -> None:
    assert run_demo.headline(detail(evaluations=[]), Path("r.html")) == "demo: 22 global steps in 131 s, report r.html"


def test_the_newest_evaluation_of_a_label_counts() -> None:
    evaluations = [{"label": "after", "metrics": {"reward": value}} for value in (0.1, 0.2)]
    assert run_demo.evaluation(detail(evaluations=evaluations), "after") == {"reward": 0.2}


@pytest.mark.parametrize(
    ("arguments", "node", "changes"),
    [
        ([], "laptop.toml", []),
        (["--seed", "3"], "laptop.toml", ["seed=3"]),
        (["--colocated"], "trainer-only.toml", ["schedule.generators=[]"]),
        (["--dedicated-reward", "--set", "seed=4"], "laptop-reward.toml", ["schedule.scoring=dedicated", "seed=4"]),
    ],
)
def test_options_choose_node_file_and_changes(arguments: list[str], node: str, changes: list[str]) -> None:
    options = run_demo.parse(arguments)
    assert run_demo.node_file(options).name == node
    assert run_demo.overrides(options)[1::2] == changes
    assert load_job(run_demo.JOB, changes).name == "shapes-flow-grpo"


@pytest.mark.parametrize("arguments", [["--job", "no-such.toml"], ["--colocated", "--dedicated-reward"], ["--sed=1"]])
def test_bad_options_are_refused_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_demo.parse(arguments)
    assert arguments[0].split("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize("name", ["laptop.toml", "laptop-reward.toml", "trainer-only.toml"])
def test_a_demo_has_a_node_file_with_places_of_its_own(tmp_path: Path, name: str) -> None:
    base = load_node(run_demo.NODES / name)
    node = load_node(write_node(run_demo.NODES / name, tmp_path, tmp_path / "runs"))
    assert node.address == f"ipc://{tmp_path}/driver.sock"
    assert (node.state, node.runs) == (str(tmp_path), str(tmp_path / "runs"))
    assert (node.generator, node.trainer, node.reward) == (base.generator, base.trainer, base.reward)


def test_demos_at_once_write_to_runs_folders_of_their_own(tmp_path: Path) -> None:
    with free_runs_folder(tmp_path) as first, free_runs_folder(tmp_path) as second:
        assert (first, second) == (tmp_path, tmp_path / "parallel-2")
    with free_runs_folder(tmp_path) as again:
        assert again == tmp_path


def test_a_demo_leaves_the_runs_folder_to_a_recorder_that_writes_there(tmp_path: Path) -> None:
    with (tmp_path / ".recorder.lock").open("ab") as recorder:
        fcntl.flock(recorder, fcntl.LOCK_EX)
        with free_runs_folder(tmp_path) as folder:
            assert folder == tmp_path / "parallel-2"


def test_a_run_is_told_when_its_summary_has_all_records(tmp_path: Path) -> None:
    assert not run_demo.is_told(tmp_path, 7)
    for records, told in ((6, False), (7, True)):
        (tmp_path / "summary.json").write_text(json.dumps({"num_records": records}))
        assert run_demo.is_told(tmp_path, 7) is told


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clusters are stand-ins, below; this file is there once one was stopped in order."""
    ended = tmp_path / "ended"
    monkeypatch.setattr(demo_cluster, "UP", [sys.executable, "-c", UP, str(ended)])
    monkeypatch.setattr(demo_cluster, "ROOT", tmp_path)
    return ended


def test_a_cluster_is_stopped_and_leaves_nothing(ended: Path) -> None:
    with running(run_demo.NODES / "laptop.toml") as cluster:
        assert cluster.up.poll() is None
    assert (cluster.up.returncode, ended.exists(), cluster.state.exists()) == (0, True, False)


@pytest.mark.parametrize("how", [KeyboardInterrupt, SystemExit])
def test_a_cluster_is_stopped_when_the_demo_is_interrupted(ended: Path, how: type[BaseException]) -> None:
    with pytest.raises(how), running(run_demo.NODES / "laptop.toml") as cluster:
        raise how
    assert (cluster.up.returncode, ended.exists(), cluster.state.exists()) == (0, True, False)


def test_the_logs_of_a_demo_that_failed_stay(ended: Path) -> None:
    with pytest.raises(DemoFailed) as caught, running(run_demo.NODES / "laptop.toml") as cluster:
        raise DemoFailed("no reward rose")
    logs = f"logs are in {cluster.state}/logs, that of `digend up` is {cluster.state}/up.log"
    assert str(caught.value) == f"no reward rose\ndemo: {logs}"
    assert (ended.exists(), (cluster.state / "up.log").exists()) == (True, True)
    shutil.rmtree(cluster.state)


def test_a_cluster_may_be_kept(ended: Path) -> None:
    with running(run_demo.NODES / "laptop.toml") as cluster:
        cluster.keep = True
    try:
        assert (cluster.up.poll(), cluster.node.exists()) == (None, True)
    finally:
        cluster.stop()
        shutil.rmtree(cluster.state)
    assert ended.exists()


def test_a_cluster_that_does_not_come_up_is_a_failure(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_cluster, "UP", [sys.executable, "-c", "raise SystemExit(78)"])
    with pytest.raises(DemoFailed, match="ended with 78") as caught, running(run_demo.NODES / "laptop.toml"):
        pass
    shutil.rmtree(str(caught.value).partition("logs are in ")[2].partition("/logs")[0])


def test_a_job_that_is_not_valid_starts_nothing() -> None:
    command = [sys.executable, "-m", "scripts.run_demo", "--set", "training.global_stps=2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert "did you mean training.global_steps?" in done.stderr
    assert "demo: nothing was started" in done.stderr


@pytest.mark.parametrize("script", ["setup", "test"])
def test_scripts_have_help_that_does_nothing(tmp_path: Path, script: str) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    command = ["sh", str(tmp_path / "scripts" / script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: scripts/{script}")
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]


def test_help_needs_nothing_but_python() -> None:
    command = ["sh", str(ROOT / "scripts/demo"), "--help"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": os.path.realpath(sys.executable)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "--dedicated-reward" in done.stdout
