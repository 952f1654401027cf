"""digend where only its base is installed: all works but what generates and trains, and that says what is missing."""

import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from digend.exitcodes import ExitCode
from digend.extras import WORKER
from tests.light import base, light_python
from tests.up.conftest import ROOT

Run = Callable[..., "subprocess.CompletedProcess[str]"]
JOB = str(ROOT / "configs/jobs/shapes-flow-grpo.toml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


MISSING = "not installed here: torch, diffusers, transformers, peft, accelerate: pip install 'digend[worker]'"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter without torch."""
    return str(light_python(tmp_path_factory.mktemp("light") / "env"))


@pytest.fixture
def light(python: str) -> Run:
    """Runs a module of the project under it."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [python, "-m", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)

    return run


def node_file(folder: Path, *tables: str) -> str:
    path = folder / "node.toml"
    path.write_text('address = "ipc://d.sock"\nstate = "state"\n' + "\n".join(tables), encoding="utf-8")
    return str(path)


def test_what_workers_import_is_what_the_extra_lists() -> None:
    named = [re.split(r"[>=]", line)[0] for line in PROJECT["optional-dependencies"]["worker"]]
    assert sorted(named) == sorted(WORKER)
    assert not set(base()) & set(WORKER)
    assert PROJECT["optional-dependencies"]["reward"] == []


@pytest.mark.parametrize("role", ["generator", "trainer"])
def test_a_worker_names_what_is_missing_and_how_to_get_it(light: Run, folder: Path, role: str) -> None:
    done = light("daemons.main", role, "--node", node_file(folder, f"[{role}]"))
    assert done.returncode == ExitCode.BAD_CONFIG
    assert MISSING in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_misses_them_only_where_something_generates_or_trains(light: Run, folder: Path) -> None:
    found = light("daemons.main", "doctor", node_file(folder, "[driver]", "[reward]", 'devices = ["cpu"]'))
    assert found.returncode == ExitCode.OK, found.stdout
    assert "torch: not installed; only generators and trainers need it" in found.stdout
    found = light("daemons.main", "doctor", node_file(folder, "[driver]", "[trainer]", 'device = "cpu"'))
    assert found.returncode == ExitCode.BAD_CONFIG
    assert "torch: not installed: pip install 'digend[worker]' into this environment" in found.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("plan", JOB, "--generate", "1", "--update", "1"),
        ("simulate", "--micro-batches", "8", "--generate", "2", "--update", "1", "--strategy", "planned"),
        ("submit", JOB, "--check"),
    ],
)
def test_digenctl_works(light: Run, words: tuple[str, ...]) -> None:
    done = light("clients", *words)
    assert done.returncode == ExitCode.OK, done.stderr


def test_a_driver_with_a_recorder_takes_a_job(python: str, light: Run, folder: Path) -> None:
    node = node_file(folder, 'runs = "runs"', "recorder = true", "[driver]")
    up = subprocess.Popen([python, "-m", "daemons.main", "up", node], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        done = light("clients", "submit", JOB, "--id", "first", "--node", node)
        assert done.returncode == ExitCode.OK, done.stderr
        shown = light("clients", "status", "--node", node)
        assert "first" in shown.stdout
        assert "no trainer is connected" in shown.stdout
    finally:
        up.terminate()
        assert up.wait(60) == ExitCode.OK


def test_an_export_says_what_it_needs(light: Run, folder: Path) -> None:
    run = folder / "runs" / "first"
    (run / "checkpoints" / "step-000003").mkdir(parents=True)
    (run / "checkpoints" / "step-000003" / "manifest.json").write_text("{}")
    (run / "job.toml").write_text("")
    done = light("clients", "export", str(run), str(folder / "out"))
    assert done.returncode == ExitCode.BAD_CONFIG, done.stderr
    assert MISSING in done.stderr
