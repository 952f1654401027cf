"""A dedicated reward under an interpreter that has the packages of the base only, thus no torch."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import running
from tests.e2e.run import assert_counted_once
from tests.light import light_python


@pytest.mark.matrix
def test_a_job_whose_rewards_come_from_another_interpreter(tmp_path: Path) -> None:
    python = light_python(tmp_path / "reward-env")
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
