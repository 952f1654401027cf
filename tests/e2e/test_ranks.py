"""Two real trainer processes as one, over gloo: the weights of one trainer, and a rank that is killed in the middle."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from torch import Tensor

from digend.checkpoint_names import checkpoint_of
from digend.engines.checkpoints import read_checkpoint
from digend.wire.records import RestartRecord, TaskFailure
from digend.wire.views import NodeView
from tests.e2e.cluster import Cluster, running, wait_until
from tests.e2e.run import Run, assert_counted_once

ROLES = {"driver": {}, "recorder": True, "trainer": {"slots": 2, "device": "cpu"}}
COLOCATED = ("schedule.generators=[]", "eval.enabled=false", "training.global_steps=3", "checkpoint.every=1")
TWO = ("training.ranks=2", "training.rank_timeout_s=30.0")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two trainers, and whoever writes the run."""
    with running(roles=ROLES) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> Run:
    return cluster.run("alone", *COLOCATED)


def weights(run: Run) -> dict[str, Tensor]:
    """Of the last checkpoint, in however many files."""
    stored = read_checkpoint(checkpoint_of(run.folder, None)).weights
    return {name: each.whole() for name, each in stored.items()}


def assert_same_weights(run: Run, other: Run) -> None:
    """To what float32 leaves of a sum in another order, after some steps of Adam."""
    ours, theirs = weights(run), weights(other)
    assert ours.keys() == theirs.keys()
    change = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert change < 1e-4, f"weights differ by {change}"


def shown(cluster: Cluster) -> dict[str, NodeView]:
    return {node.name: node for node in cluster.driver.nodes()}


def test_two_ranks_make_the_weights_of_one_trainer(cluster: Cluster, alone: Run) -> None:
    cluster.submit("two", *COLOCATED, *TWO)
    cluster.sees("two", lambda view: view.state == "running", "both have met")
    nodes = shown(cluster)
    assert [(nodes[f"t/trainer/{rank}"].rank, nodes[f"t/trainer/{rank}"].ranks) for rank in (0, 1)] == [(0, 2), (1, 2)]
    assert "trainer 1 of 2" in cluster.ctl("nodes").stdout
    run = cluster.completed("two")
    assert_counted_once(run, 3)
    assert "2 trainer ranks have met (epoch 1): t/trainer/0, t/trainer/1" in run.notices()
    assert not run.bodies(RestartRecord)
    assert_same_weights(run, alone)
    told = cluster.ctl("explain", "two").stdout
    assert "versions   3 optimizer steps: optimizer " in told
    assert " s an update (median), " in told
    assert "update_gather" in run.summary["stage_seconds"]["t/trainer/0"]
    names = {path.name for path in checkpoint_of(run.folder, None).iterdir()}
    assert {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"} <= names


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.matrix)])
def test_a_killed_rank_costs_no_step(cluster: Cluster, alone: Run, rank: int) -> None:
    job = f"killed-{rank}"
    cluster.submit(job, *COLOCATED, *TWO)
    cluster.reached(job, 1)
    killed = cluster.kill(f"trainer-{rank}")
    cluster.replaced(f"trainer-{rank}", killed)
    run = cluster.completed(job)
    assert_counted_once(run, 3)
    assert f"trainer rank {rank} (t/trainer/{rank}) was lost" in run.bodies(RestartRecord)[-1].reason
    told = cluster.ctl("story", job).stdout
    assert "trainer rank" in told
    assert "2 trainer ranks have met (epoch 2)" in run.notices()
    assert_same_weights(run, alone)
    names = {path.name for path in checkpoint_of(run.folder, None).iterdir()}
    assert {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"} <= names


@pytest.mark.matrix
def test_nobody_waits_for_a_rank_that_dies_before_it_joins(cluster: Cluster) -> None:
    """Rank 0 waits in vain, for ten minutes if nobody told it; longer than the test has."""
    cluster.all_present(3)
    pid = cluster.pid("trainer-1")
    os.kill(pid, signal.SIGSTOP)
    cluster.submit("late", *COLOCATED, "training.ranks=2", "training.rank_timeout_s=600.0", "training.global_steps=1")
    wait_until(lambda: shown(cluster)["t/trainer/0"].ranks == 2, "rank 0 is to meet rank 1")
    time.sleep(1.0)
    os.kill(pid, signal.SIGKILL)
    run = cluster.completed("late")
    assert "trainer rank 1 (t/trainer/1) was lost" in run.bodies(RestartRecord)[0].reason
    assert "2 trainer ranks have met (epoch 2)" in run.notices()


@pytest.mark.matrix
def test_a_job_of_one_trainer_behind_one_of_two_ranks(cluster: Cluster) -> None:
    """It begins in the turn in which the ranks are told to leave."""
    cluster.all_present(3)
    short = (*COLOCATED, "training.global_steps=1")
    for pair in range(3):
        cluster.submit(f"ranked-{pair}", *short, *TWO)
        cluster.submit(f"behind-{pair}", *short)
        cluster.completed(f"ranked-{pair}")
        run = cluster.completed(f"behind-{pair}")
        assert not run.bodies(TaskFailure)
