"""kill -9 of each process in mid-run: the job completes, and no sample counts twice."""

import subprocess
import sys

import pytest

from digend.wire.records import IdleRecord, RestartRecord
from tests.e2e.cluster import ROOT, Cluster, answers, environment, wait_until
from tests.e2e.pairs import trained_pairs
from tests.e2e.run import Run, assert_counted_once, assert_time_is_accounted_for

JOB = ("data.samples_per_prompt=8", "eval.samples=1", "training.deterministic=true")
"""Long enough to be hit in the middle."""


def assert_sound(run: Run) -> None:
    assert_counted_once(run, 4)
    assert_time_is_accounted_for(run, *run.summary["stage_seconds"])
    assert {"t/trainer/0", "t/generator/0"} <= set(run.summary["stage_seconds"])
    for step in run.steps:
        assert step.first_max_abs_log_ratio <= 1e-6, "trained on samples of other weights"


def test_the_generator(healthy: Cluster) -> None:
    healthy.submit("generator-killed", *JOB)
    healthy.reached("generator-killed", 1)
    healthy.replaced("generator-0", healthy.kill("generator-0"))
    run = healthy.completed("generator-killed")
    assert_sound(run)
    assert run.counters["lost_workers"] == 1
    assert run.counters["restarts"] == 0
    assert len(trained_pairs(healthy.journal, "generator-killed")) == 4 * 2 * 8 * 2


def test_the_trainer_goes_on_from_a_checkpoint(healthy: Cluster) -> None:
    """With deterministic = true to the bit where it would have been, as if nothing had happened."""
    healthy.submit("trainer-killed", *JOB)
    healthy.reached("trainer-killed", 3)
    healthy.replaced("trainer-0", healthy.kill("trainer-0"))
    run = healthy.completed("trainer-killed")
    assert_sound(run)
    (restart,) = run.bodies(RestartRecord)
    assert (restart.incarnation, restart.global_step) == (1, 2)
    assert "trainer" in restart.reason
    steps = [(line["incarnation"], line["global_step"]) for line in run.metrics if line["kind"] == "step"]
    assert steps[:3] == [(0, 1), (0, 2), (0, 3)]
    assert steps[-2:] == [(1, 3), (1, 4)]
    assert run.summary["job"]["incarnation"] == 1
    undisturbed = healthy.run("undisturbed", *JOB)
    assert run.weights() == undisturbed.weights()


@pytest.mark.matrix
def test_the_trainer_while_its_state_is_in_host_memory(healthy: Cluster) -> None:
    offload = ("schedule.strategy=static:2", "schedule.tag_memory=offload", "training.deterministic=false")
    healthy.submit("killed-in-tag", *JOB, *offload, "sampling.num_timesteps=40")
    healthy.reached("killed-in-tag", 1)
    wait_until(lambda: doing(healthy, "t/trainer/0") == "assist", "the trainer generates")
    healthy.replaced("trainer-0", healthy.kill("trainer-0"))
    run = healthy.completed("killed-in-tag")
    assert_counted_once(run, 4)
    assert len(run.bodies(RestartRecord)) == 1
    lost = [idle.cause for idle in run.bodies(IdleRecord) if idle.cause.startswith("lost ")]
    assert any(cause.startswith("lost assist") for cause in lost), lost
    assert run.counters["failed_tasks"] == 0


def doing(cluster: Cluster, worker: str) -> str:
    return next((node.task for node in cluster.driver.nodes() if node.name == worker), "")


@pytest.mark.matrix
def test_the_reward_process(healthy: Cluster) -> None:
    healthy.submit("reward-killed", *JOB, "schedule.scoring=dedicated")
    healthy.reached("reward-killed", 1)
    healthy.replaced("reward-0", healthy.kill("reward-0"))
    run = healthy.completed("reward-killed")
    assert_sound(run)
    assert run.counters["masked_samples"] == 0
    assert run.counters["lost_workers"] == 1


def test_the_recorder(healthy: Cluster) -> None:
    healthy.submit("recorder-killed", *JOB, "eval.every=1")
    healthy.reached("recorder-killed", 1)
    healthy.replaced("recorder", healthy.kill("recorder"))
    run = healthy.completed("recorder-killed")
    assert_sound(run)
    assert run.counters["lost_workers"] == 0
    assert len(run.metrics) == len(run.steps) + len(run.evaluations)
    sheets = sorted(path.name for path in (run.folder / "samples").glob("step-*.png"))
    assert sheets == [f"step-{step:06d}.png" for step in range(5)]


def test_the_driver(healthy: Cluster) -> None:
    """What was acknowledged survives; workers keep their processes and what they hold."""
    epoch = healthy.driver.status().epoch
    healthy.submit("driver-killed", *JOB)
    healthy.submit("queued-meanwhile", "eval.enabled=false", "training.global_steps=1")
    healthy.reached("driver-killed", 1)
    before = {node.name: node.pid for node in healthy.driver.nodes()}
    healthy.replaced("driver", healthy.kill("driver"))
    wait_until(lambda: answers(healthy.driver), "the driver answers again")
    run = healthy.completed("driver-killed")
    assert_sound(run)
    assert healthy.driver.status().epoch == epoch + 1
    assert {node.name: node.pid for node in healthy.driver.nodes()} == before
    assert run.counters["lost_workers"] == run.counters["restarts"] == 0
    assert_counted_once(healthy.completed("queued-meanwhile"), 1)


def test_and_the_journal_of_it_all_replays(healthy: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daemons.replay", str(healthy.journal)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
