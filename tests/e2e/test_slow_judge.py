"""A judge that is slow: a global step lasts as simulated from its task times, and `digenctl explain` names the wait."""

import subprocess
import sys

import pytest

from tests.e2e.cluster import ROOT, environment

pytestmark = pytest.mark.matrix


def test_the_step_is_as_simulated_and_the_wait_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.slow_judge", "--judge", "0.5", "--steps", "2", "--check", "0.15"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "waiting for reward" in done.stdout
