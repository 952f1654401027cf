"""Boxes that are not alike, through real daemons: one half as fast, one late and weak, one drained, one of other
versions.

The pace of a generator comes from an installed model family (paced_package.py), whose passes take long enough to be
measured on a box that is busy with other things.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
import tomli_w

from broker.commands import Command, SendTask
from broker.core import Core
from broker.events import WeightsStaged, WorkerHello
from daemons.driver.journal import Batch, Journal
from daemons.worker.versions import ATTENTION
from digend.exitcodes import ExitCode
from digend.wire.records import TaskRecord
from digend.wire.tasks import GenerateTask
from tests.e2e.boxes import GENERATOR, has_joined, joining
from tests.e2e.cluster import JOB, ROOT, Cluster, running, short_folder, wait_until, with_packages
from tests.e2e.paced_package import install, pretend_version
from tests.e2e.run import Run, assert_counted_once

ROLES = {"driver": {}, "recorder": True, "trainer": {"device": "cpu"}, **GENERATOR}
K = 12
"""Samples of a micro-batch: 8 and 4 on speeds 2 and 1."""

PACED = (
    "model.family=paced",
    f"data.samples_per_prompt={K}",
    "sampling.rollout_batch=1",
    "training.update_batch=12",
    "training.timestep_width=2",
    "eval.enabled=false",
    "checkpoint.every=0",
    "keep_pairs=false",
)
WEAK = {"generator": {**GENERATOR["generator"], "offload_encoders": True, "offload_blocks": 1}}
"""Of a box that the model does not fit on."""

FAST, SLOW, LATE = "t/generator/0", "slow/generator/0", "late/generator/0"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders like site-packages, by box."""
    folder = tmp_path_factory.mktemp("site-packages")
    return {name: install(folder / name, times) for name, times in (("t", 1), ("slow", 2))}


@pytest.fixture(scope="module")
def pool(packages: dict[str, Path]) -> Iterator[Cluster]:
    """A fast generator beside the driver, and a box whose generator does each forward pass twice."""
    folder = short_folder()
    with (
        joining(f"ipc://{folder}/driver.sock", "slow", [packages["slow"]]),
        running(roles=ROLES, packages=(packages["t"],), folder=folder) as cluster,
    ):
        has_joined(cluster, SLOW)
        yield cluster


@pytest.fixture(scope="module")
def shared(pool: Cluster) -> Run:
    """A job of four global steps on both."""
    submit(pool, "shared", 4)
    return pool.completed("shared")


def submit(pool: Cluster, job: str, global_steps: int) -> None:
    """By digenctl with the package installed, which checks the job's family."""
    given = (*pool.short, *PACED, f"training.global_steps={global_steps}")
    pool.ctl("submit", str(JOB), "--id", job, *(word for each in given for word in ("--set", each)))


def samples_by_worker(run: Run, first_step: int) -> dict[str, list[int]]:
    """Samples that each worker generated of each micro-batch of the global steps from `first_step` on."""
    found: dict[str, dict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
    for record in run.bodies(TaskRecord):
        if record.task == "generate" and record.global_step >= first_step:
            found[record.worker][record.global_step, record.micro_batch] += record.num_samples
    return {worker: list(counts.values()) for worker, counts in found.items()}


@pytest.mark.matrix
def test_one_that_is_half_as_fast_gets_half_the_samples(shared: Run) -> None:
    """From the second global step on: what the first measured is what it starts from."""
    counts = samples_by_worker(shared, first_step=1)
    assert set(counts) == {FAST, SLOW}
    fast, slow = (sum(counts[name]) for name in (FAST, SLOW))
    num_batches = (fast + slow) / K
    assert num_batches == 6
    assert abs(fast - 2 * slow) <= 3 * num_batches, (
        f"{counts}: one sample of a micro-batch, moved, is a difference of 3"
    )
    assert_counted_once(shared, 4)


def refused(pool: Cluster, environ: Mapping[str, str], folder: Path) -> str:
    """What a generator of another box says that ends with a bad configuration."""
    node = folder / "other.toml"
    table = {"name": "other", "address": pool.address, "state": str(folder / "s"), "runs": str(folder / "r")}
    node.write_text(tomli_w.dumps({**table, **GENERATOR}))
    done = subprocess.run(
        [sys.executable, "-m", "daemons.main", "generator", "--node", str(node)],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.BAD_CONFIG, done.stderr
    return done.stderr


def test_one_of_another_version_is_refused_and_both_are_named(
    pool: Cluster, packages: dict[str, Path], tmp_path: Path
) -> None:
    other = pretend_version(tmp_path / "site", "diffusers", "0.0.1")
    told = refused(pool, with_packages((other, packages["t"])), tmp_path)
    assert "other/generator/0 has diffusers 0.0.1" in told
    assert f"has {version('diffusers')}: the numbers would differ" in told
    assert "other/generator/0 has diffusers 0.0.1" in pool.log_tail()
    assert not any(node.name == "other/generator/0" for node in pool.driver.nodes())


@pytest.mark.matrix
def test_one_of_another_attention_is_refused_and_both_are_named(
    pool: Cluster, packages: dict[str, Path], tmp_path: Path
) -> None:
    told = refused(pool, {**with_packages((packages["t"],)), ATTENTION: "_native_math"}, tmp_path)
    assert "other/generator/0 has attention_backend _native_math, " in told
    assert "has native: the numbers would differ" in told
    assert all(
        node.versions["attention_backend"] == "native" for node in pool.driver.nodes() if node.role != "recorder"
    )


@pytest.mark.matrix
@pytest.mark.matrix
def test_one_that_joins_late_is_used_and_a_drained_one_leaves_nothing_undone(
    pool: Cluster, packages: dict[str, Path], shared: Run
) -> None:
    submit(pool, "moving", 400)
    pool.reached("moving", 1)
    with joining(pool.address, "late", [packages["t"]], WEAK):
        wait_until(lambda: late_use(pool.journal, "moving") is not None, "the late one has work")
        skipped = late_use(pool.journal, "moving")
        assert skipped is not None
        assert skipped <= 1, f"{skipped} micro-batches were dealt without it"

        said = pool.ctl("drain", "slow", "-m", "its fan is loud", "--wait").stdout
        assert "slow is drained" in said
        drained_at = tasks_of(pool, "moving")[SLOW]
        step = pool.driver.job("moving").job.global_step
        pool.reached("moving", step + 2)
        assert tasks_of(pool, "moving")[SLOW] == drained_at, "it got nothing more"
        pool.ctl("undrain", "slow")
        wait_until(lambda: tasks_of(pool, "moving")[SLOW] > drained_at, "it works again")

        assert "drained" in pool.ctl("drain", "late", "-m", "it is needed elsewhere", "--wait").stdout
    pool.reached("moving", pool.driver.job("moving").job.global_step + 2)
    pool.ctl("cancel", "moving", "--after", "global-step")
    run = pool.over("moving", "cancelled")
    assert_counted_once(run, len(run.steps))
    assert run.counters["failed_tasks"] == run.counters["lost_workers"] == 0
    assert all(each.num_samples == 2 * K and each.num_masked == 0 for each in run.steps)
    assert all(each.first_max_abs_log_ratio <= 1e-6 for each in run.steps), "all drew what the trainer would draw"


def tasks_of(pool: Cluster, job: str) -> dict[str, int]:
    """Finished generations of a running job, by worker; of those that the recorder has written."""
    found: dict[str, int] = defaultdict(int)
    for record in pool.driver.all_records(job):
        if isinstance(record.body, TaskRecord) and record.body.task == "generate":
            found[record.body.worker] += 1
    return found


def late_use(path: Path, job: str) -> int | None:
    """Micro-batches that were dealt after the late generator had staged weights and before it got its first fragment;
    None where it has none yet."""
    core, session, ready = Core(), "", False
    begun, without = set[tuple[int, int]](), set[tuple[int, int]]()
    for batch in batches(path):
        for event in batch.events:
            if isinstance(event, WorkerHello) and event.hello.name == LATE:
                session = event.session
            ready = ready or (isinstance(event, WeightsStaged) and event.session == session)
        for sent, task in generations(core.step(batch.now_ns, batch.events), job):
            micro_batch = (task.rollout, task.micro_batch)
            if sent == session:
                return len(without - {micro_batch})
            if ready and micro_batch not in begun:
                without.add(micro_batch)
            begun.add(micro_batch)
    return None


def batches(path: Path) -> Iterator[Batch]:
    """The journal of a driver that lives its first life."""
    journal = Journal(path, read_only=True)
    try:
        yield from journal.batches()
    finally:
        journal.close()


def generations(commands: Sequence[Command], job: str) -> Iterator[tuple[str, GenerateTask]]:
    """(session, task) of what is sent out to be generated."""
    for command in commands:
        if isinstance(command, SendTask) and isinstance(command.task, GenerateTask) and command.task.job == job:
            yield command.session, command.task
