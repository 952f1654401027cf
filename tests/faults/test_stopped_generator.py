"""SIGSTOP: a process that is slow, not dead. It is noticed and named, gets nothing more to do, and heals."""

import os
import signal

from digend.exitcodes import ExitCode
from digend.wire.records import WorkerState
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.run import assert_counted_once

WORKER = "t/generator/0"


def test_it_is_torpid_then_lost_and_comes_back(healthy: Cluster) -> None:
    healthy.submit("stopped", "data.samples_per_prompt=8", "eval.samples=1")
    healthy.reached("stopped", 1)
    pid = healthy.pid("generator-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: node_states(healthy).get(WORKER) == "torpid", "the generator is called torpid", 30.0)
        said = healthy.ctl("status", code=ExitCode.DEGRADED).stdout
        assert f"problem  {WORKER}: torpid" in said
        wait_until(lambda: WORKER not in node_states(healthy), "the generator is called lost", 60.0)
        said = healthy.ctl("status", code=ExitCode.DEGRADED).stdout
        assert f"problem  {WORKER}: lost, no heartbeat" in said
        assert "no generator is connected" in said
    finally:
        os.kill(pid, signal.SIGCONT)
    run = healthy.completed("stopped")
    assert healthy.pid("generator-0") == pid
    healthy.ctl("status")
    assert_counted_once(run, 4)
    assert all(step.first_max_abs_log_ratio <= 1e-6 for step in run.steps)
    states = [body.state for body in run.bodies(WorkerState) if body.worker == WORKER]
    assert states == ["torpid", "lost", "joined"]
    assert run.summary["stage_seconds"][WORKER]["absent"] > 0


def node_states(cluster: Cluster) -> dict[str, str]:
    return {node.name: node.state for node in cluster.driver.nodes()}
