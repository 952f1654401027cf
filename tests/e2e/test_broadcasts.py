"""Policy versions by broadcast between real workers over gloo: the weights of a run that pulls, whoever is missing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from digend.wire.records import StagingRecord
from tests.e2e.cluster import Cluster, running, wait_until
from tests.e2e.run import Run, assert_counted_once

pytestmark = pytest.mark.matrix

ROLES = {
    "driver": {},
    "recorder": True,
    "trainer": {"device": "cpu"},
    "generator": {"slots": 2, "devices": ["cpu", "cpu"]},
}
QUICK = ("eval.enabled=false", "checkpoint.every=1")
EXACT = (*QUICK, "training.deterministic=true")
BROADCAST = ("training.publish_by=broadcast", "training.publish_timeout_s=60.0")
GENERATORS = ("t/generator/0", "t/generator/1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(roles=ROLES, timing={"torpid_s": 30.0, "lost_s": 90.0}) as cluster:
        yield cluster


def came_by(run: Run, version: int) -> dict[str, str]:
    """Worker -> how a version came to it."""
    return {each.worker: each.by for each in run.bodies(StagingRecord) if each.version == version and not each.error}


@pytest.mark.parametrize(
    "options", [(), ("training.publish=whole",), ("training.trainable=lora", "training.learning_rate=3e-3")]
)
def test_the_weights_are_those_of_a_run_that_pulls(cluster: Cluster, options: tuple[str, ...]) -> None:
    name = "-".join(("x", *options)).replace("training.", "").replace("=", "-").replace(".", "-")[:30]
    pulled = cluster.run(f"{name}-pull", *EXACT, *options)
    sent = cluster.run(f"{name}-sent", *EXACT, *options, *BROADCAST)
    assert_counted_once(sent, 4)
    assert sent.weights() == pulled.weights()
    for version in (1, 2, 3):
        assert came_by(sent, version) == dict.fromkeys(GENERATORS, "broadcast"), sent.notices()
        assert came_by(pulled, version) == dict.fromkeys(GENERATORS, "pull")
    assert "broadcast failed" not in sent.notices()


BREAKING = """
import os
import signal
import sys
from pathlib import Path

from digend.engines.broadcasts import Broadcasts, Circle

FLAG = Path(__file__).with_suffix(".flag")
meet, share, begun, shared = Broadcasts.meet, Circle.share, [], []


def break_once(name):
    FLAG.write_text(str(os.getpid()))
    os.kill(os.getpid(), getattr(signal, name))


def broken_meet(broadcasts, *words):
    begun.append(1)
    shared.clear()
    if FLAG.stem == "sigstop" and len(begun) == 2 and not FLAG.exists():
        break_once("SIGSTOP")
    return meet(broadcasts, *words)


def broken_share(circle, data):
    shared.append(1)
    if FLAG.stem == "sigkill" and len(begun) == 2 and len(shared) == 2 and not FLAG.exists():
        break_once("SIGKILL")
    share(circle, data)


if "generator" in sys.argv and sys.argv[-1] == "1":
    Broadcasts.meet, Circle.share = broken_meet, broken_share


def bright(pixels, prompts, metadata):
    return pixels.mean(axis=(1, 2, 3)).tolist()
"""
"""A reward in whose process a signal comes once: as the second broadcast begins, or in the middle of it."""


def broken(cluster: Cluster, job: str, limit_s: float) -> Path:
    """A job, named as the signal that generator 1 gets; the file that names its process then."""
    rewards = cluster.folder / "rewards"
    (rewards / f"{job}.py").write_text(BREAKING)
    more = (f"rewards[0].name={job}.py:bright", "training.global_steps=6", f"training.publish_timeout_s={limit_s}")
    cluster.submit(job, *QUICK, "training.publish_by=broadcast", *more)
    return rewards / f"{job}.flag"


def assert_unharmed(run: Run) -> None:
    assert_counted_once(run, 6)
    assert all(step.first_max_abs_log_ratio <= 1e-6 for step in run.steps)
    assert all(step.gradient_norm > 0 for step in run.steps)


def fallen_back(run: Run) -> list[StagingRecord]:
    return [each for each in run.bodies(StagingRecord) if each.fell_back]


def test_one_that_is_killed_in_the_middle_costs_no_step(cluster: Cluster) -> None:
    flag = broken(cluster, "sigkill", 60.0)
    run = cluster.completed("sigkill")
    assert flag.exists()
    assert_unharmed(run)
    fallen = fallen_back(run)
    assert {(each.worker, each.by) for each in fallen} == {("t/generator/0", "pull")}, "whom the killed one left alone"
    assert f"version {fallen[0].version} was pulled by t/generator/0, its broadcast failed: " in run.notices()
    assert all(each.end_ns - each.start_ns < 45e9 for each in fallen), "before the time limit"
    later = [each for each in run.bodies(StagingRecord) if each.version > fallen[-1].version]
    assert "broadcast" in {each.by for each in later}, "the next version goes to those that are there"


def test_one_that_stands_still_costs_the_others_the_time_limit(cluster: Cluster) -> None:
    flag = broken(cluster, "sigstop", 4.0)
    try:
        wait_until(flag.exists, "it stands still")
        run = Run(cluster.folder / "runs" / "sigstop")
        wait_until(lambda: bool(fallen_back(run)), "the other has fallen back")
    finally:
        os.kill(int(flag.read_text()), signal.SIGCONT)
    run = cluster.completed("sigstop")
    assert_unharmed(run)
    assert {each.worker for each in fallen_back(run)} == set(GENERATORS)
    fallen = next(each for each in fallen_back(run) if each.worker == "t/generator/0")
    assert 4e9 <= fallen.end_ns - fallen.start_ns < 30e9
