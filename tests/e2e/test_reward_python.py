"""A dedicated reward under an interpreter that has no torch, and only what requirements-reward.txt names."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.e2e.cluster import ROOT, running
from tests.e2e.run import assert_counted_once

LISTED = [
    re.split(r"[>=]", line)[0]
    for line in (ROOT / "requirements-reward.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def test_the_list_is_of_own_dependencies_with_their_floors() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    listed = (ROOT / "requirements-reward.txt").read_text("utf-8").splitlines()
    assert {line for line in listed if not line.startswith("#")} <= set(own)
    assert not {"torch", "diffusers", "transformers", "peft", "accelerate"} & set(LISTED)


def interpreter(folder: Path) -> Path:
    """A second venv, offline: links to the listed packages of this one and to what those need, and to nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    todo, done = list(LISTED), set[str]()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        found = distribution(name)
        todo += [
            re.split(r"[^\w.-]", each)[0] for each in found.requires or () if "extra ==" not in each and ";" not in each
        ]
        for file in found.files or ():
            top = file.parts[0]
            source = Path(str(found.locate_file(top)))
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(source)
    return folder / "bin" / "python"


@pytest.mark.matrix
def test_a_job_whose_rewards_come_from_another_interpreter(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "reward-env")
    code = subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False).returncode
    assert code == 1, "it has torch"
    roles = {
        "driver": {},
        "recorder": True,
        "trainer": {"device": "cpu"},
        "generator": {"slots": 1, "devices": ["cpu"]},
        "reward": {"slots": 1, "devices": ["cpu"], "python": str(python)},
    }
    with running(roles=roles) as cluster:
        (cluster.folder / "rewards" / "own.py").write_text(
            "import sys\n\n\ndef score(pixels, prompts, metadata):\n"
            f"    assert 'torch' not in sys.modules and sys.prefix == {str(tmp_path / 'reward-env')!r}, sys.prefix\n"
            "    return pixels.mean(axis=(1, 2, 3)).tolist()\n"
        )
        brief = (
            "eval.enabled=false",
            "eval.metrics=[]",
            "training.global_steps=2",
            "schedule.scoring=dedicated",
            "checkpoint.every=0",
        )
        run = cluster.run("own-python", *brief, "rewards[0].name=own.py:score")
        assert_counted_once(run, 2)
        assert all(step.num_masked == 0 for step in run.steps)
