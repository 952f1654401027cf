"""A reward that never comes back: its process is given up and replaced, its samples are tried again, then masked."""

import pytest

from digend.wire.records import WorkerState
from tests.e2e.cluster import Cluster
from tests.e2e.run import assert_counted_once

pytestmark = pytest.mark.matrix

SOURCE = """
import time


def hangs_on_circles(pixels, prompts, metadata):
    if "circle" in prompts[0]:
        time.sleep(3600)
    return pixels.mean(axis=(1, 2, 3)).tolist()
"""
BRIEF = (
    "eval.enabled=false",
    "training.global_steps=1",
    "data.prompts_per_rollout=4",
    "schedule.score_lease_s=3",
    "rewards[0].name=late.py:hangs_on_circles",
)


@pytest.fixture
def late(healthy: Cluster) -> Cluster:
    (healthy.folder / "rewards" / "late.py").write_text(SOURCE)
    return healthy


def test_in_a_process_of_its_own(late: Cluster) -> None:
    run = late.run("late-dedicated", *BRIEF, "schedule.scoring=dedicated")
    assert_counted_once(run, 1)
    (step,) = run.steps
    assert (step.num_dropped_groups, step.num_masked, step.num_selected) == (1, 4, 12)
    assert "made no progress for 3 s" in run.notices()
    lost = [body for body in run.bodies(WorkerState) if body.state == "lost"]
    assert [body.worker for body in lost] == ["t/reward/0"] * 2


def test_in_the_generator(late: Cluster) -> None:
    """Its samples are lost with the process, so they cannot be masked for ever: the job ends, and says why."""
    late.submit("late-colocated", *BRIEF)
    run = late.over("late-colocated", "failed")
    assert "score made no progress for 3 s, 2 times for micro-batch" in run.summary["job"]["reason"]
    assert "schedule.score_lease_s" in run.summary["job"]["reason"]
