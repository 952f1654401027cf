"""Pause, drain and cancel with the real processes: the weights are those of a run that never stopped."""

import subprocess
import sys
import time
from signal import SIGINT

from digend.exitcodes import ExitCode
from digend.wire.records import CheckpointRecord, StepRecord
from tests.e2e.cluster import ROOT, Cluster, environment, wait_until
from tests.e2e.test_deterministic import BRIEF

SHORT = (*BRIEF, "training.global_steps=3")


def test_a_paused_job_ends_with_the_weights_of_one_that_was_not(cluster: Cluster) -> None:
    """And another job has the workers meanwhile."""
    long = (*BRIEF, "training.global_steps=8")
    whole = cluster.run("whole", *long)
    cluster.submit("paused", *long)
    cluster.sees("paused", lambda view: view.state == "running", "it runs")
    assert "would" not in cluster.ctl("pause", "pau", "-m", "lunch", "--dry-run").stdout
    said = cluster.ctl("pause", "pau", "-m", "lunch").stdout
    assert "job paused is running: pauses after global step" in said
    cluster.sees("paused", lambda view: view.state == "paused", "it is paused")
    cluster.run("meanwhile", *SHORT, "training.global_steps=1")
    view = cluster.driver.job("paused").job
    assert view.reason.endswith("lunch")
    assert 0 < view.global_step < 8
    assert cluster.ctl("resume", "paused").stdout.startswith("job paused is")
    paused = cluster.completed("paused")
    assert paused.weights() == whole.weights()
    assert [step.global_step for step in paused.bodies(StepRecord)] == list(range(1, 9))
    assert len(paused.bodies(CheckpointRecord)) >= 2


def test_drain_waits_for_what_runs_and_the_job_goes_on_without_the_node(cluster: Cluster) -> None:
    cluster.submit("drained", *SHORT, "training.deterministic=false")
    cluster.sees("drained", lambda view: view.state == "running", "it runs")
    try:
        said = cluster.ctl("drain", "t/generator/1", "-m", "its fan is loud", "--wait").stdout
        assert "t/generator/1 is drained" in said
        nodes = {node.name: node for node in cluster.driver.nodes()}
        assert (nodes["t/generator/1"].state, nodes["t/generator/1"].drained) == ("drained", "its fan is loud")
        assert "its fan is loud" in cluster.ctl("nodes").stdout
        assert "its fan is loud" in cluster.ctl("status").stdout
        cluster.completed("drained")
    finally:
        cluster.ctl("undrain", "t/generator/1")


def test_interrupted_waiting_leaves_the_job_alone(cluster: Cluster) -> None:
    cluster.submit("waited", *BRIEF, "training.global_steps=200")
    words = [sys.executable, "-m", "clients", "wait", "waited", "--node", str(cluster.node_file)]
    waiting = subprocess.Popen(words, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)
    cluster.sees("waited", lambda view: view.state == "running", "it runs")
    time.sleep(2.0)  # for the client to have begun
    waiting.send_signal(SIGINT)
    _, errors = waiting.communicate(timeout=60)
    assert "job waited goes on" in errors
    assert waiting.returncode == 130
    cluster.ctl("cancel", "waited", "--after", "global-step")
    wait_until(lambda: cluster.driver.job("waited").job.state == "cancelled", "it is cancelled")
    detail = cluster.driver.job("waited")
    assert detail.job.reason.startswith("after global step")
    assert (detail.checkpoint is not None) == (detail.job.global_step > 0)
    cluster.ctl("pause", "waited", code=ExitCode.USAGE)
