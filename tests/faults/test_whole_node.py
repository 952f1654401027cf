"""The whole node goes down in mid-run, in order or not, and comes up again: the job goes on from its checkpoint."""

import os
import signal
from collections.abc import Iterator

import pytest

from digend.exitcodes import ExitCode
from digend.wire.records import RestartRecord
from tests.e2e.cluster import Cluster, running, wait_until
from tests.e2e.run import assert_counted_once
from tests.faults.conftest import ROLES, TIMING
from tests.faults.leaky_package import install, write_job


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own, whose jobs need no diffusers."""
    package = install(tmp_path_factory.mktemp("site-packages"))
    with running(roles=ROLES, timing=TIMING, packages=(package,)) as cluster:
        yield cluster


def begin(node: Cluster, job: str) -> int:
    """A job in the middle; the driver's epoch."""
    path = write_job(node.folder, node.folder)
    given = ("model.options.leaks=false", "training.global_steps=60", "checkpoint.every=4", "checkpoint.keep=2")
    node.ctl("submit", str(path), "--id", job, *(word for each in given for word in ("--set", each)))
    node.reached(job, 6)
    return node.driver.status().epoch


@pytest.mark.matrix
def test_stopped_and_started_again(node: Cluster) -> None:
    epoch = begin(node, "stopped")
    assert node.stop() == ExitCode.OK
    node.start_again()
    run = node.completed("stopped")
    assert_counted_once(run, 60)
    assert all(step.first_max_abs_log_ratio <= 1e-6 for step in run.steps)
    assert node.driver.status().epoch == epoch + 1
    restart = run.bodies(RestartRecord)[-1]
    assert restart.global_step >= 4
    assert restart.global_step % 4 == 0


@pytest.mark.matrix
def test_up_killed_and_started_again(node: Cluster) -> None:
    """Its processes see that it is gone, and end by themselves."""
    begin(node, "killed")
    processes = [node.pid(name) for name in ("driver", "trainer-0", "generator-0", "reward-0", "recorder")]
    node.up.send_signal(signal.SIGKILL)
    node.up.wait()
    wait_until(lambda: not any(alive(pid) for pid in processes), "no process outlives `up`")
    node.start_again()
    assert_counted_once(node.completed("killed"), 60)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
