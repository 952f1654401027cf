"""Three hosts with keys and slow links between them: driver, recorder and trainer on one, a generator on each other.

20 ms is one way, so a question and its answer take 40.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from digend.wire.records import TaskRecord
from tests.e2e.cluster import JOB, short_job, wait_until
from tests.e2e.run import Run, assert_counted_once
from tests.lab.boxes import Boxes, log_of, started
from tests.lab.network import Network, connected

GENERATOR = {"generator": {"slots": 1, "devices": ["cpu"]}}
ROLES: dict[str, dict[str, Any]] = {
    "box-a": {"driver": {}, "recorder": True, "trainer": {"device": "cpu"}},
    "box-b": GENERATOR,
    "box-c": GENERATOR,
}
WORKERS = {"box-a/recorder/0", "box-a/trainer/0", "box-b/generator/0", "box-c/generator/0"}

pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture
def network(namespaces: None) -> Iterator[Network]:
    with connected(3) as network:
        network.change(delay_ms=20.0)
        yield network


def run_of(boxes: Boxes, job: str) -> Run:
    """The run folder of a completed job, once the recorder has written all of it."""
    run = Run(boxes.folder / "runs" / job)
    wait_until(lambda: run.num_told() >= 0 and run.summary["job"]["state"] == "completed", "all is written")
    return run


def generated(run: Run) -> Counter[str]:
    """Samples by generator."""
    counts = Counter[str]()
    for record in run.bodies(TaskRecord):
        if record.task == "generate":
            counts[record.worker] += record.num_samples
    return counts


def test_three_global_steps_with_keys_and_delay(network: Network) -> None:
    with started(network, ROLES) as boxes:
        assert {name: node["traffic"] for name, node in boxes.nodes().items()} == dict.fromkeys(WORKERS, "encrypted")
        given = (*short_job(boxes.folder), "training.global_steps=3", "eval.enabled=false", "checkpoint.every=0")
        words = [word for each in given for word in ("--set", each)]
        boxes.digenctl("submit", str(JOB), "--id", "three", "--wait", *words)
        run = run_of(boxes, "three")
        assert_counted_once(run, 3)
        assert run.counters["failed_tasks"] == run.counters["lost_workers"] == 0
        assert set(generated(run)) == {"box-b/generator/0", "box-c/generator/0"}
        assert all(step.first_max_abs_log_ratio <= 1e-6 for step in run.steps)
        assert boxes.stop() == [0, 0, 0]


@pytest.mark.matrix
@pytest.mark.timeout(1500)
def test_the_demo_where_one_packet_of_a_hundred_is_lost(network: Network) -> None:
    network.change(loss=0.01)
    with started(network, ROLES) as boxes:
        boxes.digenctl("submit", str(JOB), "--id", "demo", "--wait", seconds=1200)
        run = run_of(boxes, "demo")
        assert_counted_once(run, 14)
        assert run.counters["lost_workers"] == 0
        before, *_, after = (evaluation.metrics["reward"] for evaluation in run.evaluations)
        print(f"reward {before:.4f} before, {after:.4f} after; {dict(generated(run))}; counters {run.counters}")
        assert after > before + 0.05


@pytest.mark.matrix
def test_tensors_in_the_clear_on_a_trusted_fabric(network: Network) -> None:
    with started(network, ROLES, {"trusted_fabric": "10.91.0.0/24"}) as boxes:
        traffic = {name: node["traffic"] for name, node in boxes.nodes().items()}
        assert traffic == {**dict.fromkeys(WORKERS, "clear data"), "box-a/recorder/0": "encrypted"}
        assert "tensors of 3 workers go in the clear" in boxes.digenctl("status").stdout
        given = (*short_job(boxes.folder), "training.global_steps=1", "eval.enabled=false", "checkpoint.every=0")
        words = [word for each in given for word in ("--set", each)]
        boxes.digenctl("submit", str(JOB), "--id", "clear", "--wait", *words)
        run = run_of(boxes, "clear")
        assert_counted_once(run, 1)
        assert run.counters["failed_tasks"] == 0
        # A box that trusts more than the driver's does is refused, and both are told how to mend it.
        node = boxes.folder / "box-a.toml"
        node.write_text(node.read_text().replace('trusted_fabric = "10.91.0.0/24"', ""))
        boxes.ups[0].terminate()
        boxes.ups[0].wait(60)
        boxes.start_again(0)
        wait_until(lambda: "not in keys.trusted_fabric of the driver's box" in log_of(boxes, "box-b"), "it is refused")
        wait_until(lambda: boxes.ups[1].poll() is not None, "and ends")
        assert boxes.ups[1].returncode == 78
