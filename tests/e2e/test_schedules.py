"""Every way of dividing the work completes, with the counters it must have, and trains the same pairs.

Losses are compared up to what one pixel more or less may do to a reward: forward passes of other sizes round otherwise.
"""

from collections.abc import Callable

import pytest

from digend.wire.records import TaskRecord
from tests.e2e.cluster import Cluster
from tests.e2e.pairs import PairKey, trained_pairs
from tests.e2e.run import Run, assert_counted_once, assert_time_is_accounted_for

Check = Callable[[Run], None]
GENERATORS = {"t/generator/0", "t/generator/1"}


def workers(run: Run, *tasks: str) -> set[str]:
    """Who did such tasks."""
    return {task.worker for task in run.bodies(TaskRecord) if task.task in tasks}


def shares(run: Run) -> list[int]:
    """Samples of each task of generation."""
    return [task.num_samples for task in run.bodies(TaskRecord) if task.task in ("generate", "assist")]


def micro_batches(run: Run) -> set[int]:
    return {task.micro_batch for task in run.bodies(TaskRecord) if task.task == "update"}


def gap(run: Run) -> None:
    assert workers(run, "generate") == GENERATORS
    assert micro_batches(run) == {0, 1}
    # Shares follow measured speed: a generator that was held up for a moment may get none of one group.
    assert shares(run).count(4) * 4 < sum(shares(run)) / 2, "most groups were not cut"


def batch(run: Run) -> None:
    assert all(share % 4 == 0 for share in shares(run)), "groups are whole"
    assert workers(run, "generate") == GENERATORS
    assert micro_batches(run) == {0}


def naive(run: Run) -> None:
    assert workers(run, "generate") == GENERATORS
    assert micro_batches(run) == {0}


def colocated(run: Run) -> None:
    assert workers(run, "generate", "score", "update", "evaluate", "encode") == {"t/trainer/0"}
    assert run.counters["assisted_micro_batches"] == 0
    assert set(run.summary["stage_seconds"]) == {"t/trainer/0"}


def dedicated(run: Run) -> None:
    assert workers(run, "score", "evaluate_score") == {"t/reward/0"}
    assert workers(run, "generate") == GENERATORS


def static(run: Run) -> None:
    assert all(1 <= step.assisted_micro_batches <= 2 for step in run.steps)
    assert workers(run, "assist") == {"t/trainer/0"}
    assert run.counters["strategy_decisions"] >= 8
    stages = {stage for task in run.bodies(TaskRecord) for stage, _ in task.receipt.stages}
    assert {"switch_offload", "switch_restore"} <= stages


def always(run: Run) -> None:
    assert run.counters["assisted_micro_batches"] >= 1
    assert workers(run, "assist") == {"t/trainer/0"}


OFFLOAD = ("schedule.tag_memory=offload", "schedule.tag_checksums=true")

SCHEDULES: dict[str, tuple[tuple[str, ...], Check]] = {
    "gap": (("schedule.partition=gap",), gap),
    "batch": (("schedule.partition=batch", "schedule.micro_batch_groups=2", "training.timestep_width=2"), batch),
    "naive": (("schedule.partition=naive", "training.timestep_width=0"), naive),
    "colocated": (("schedule.generators=[]",), colocated),
    "dedicated": (("schedule.scoring=dedicated",), dedicated),
    "static": (("schedule.strategy=static:2", "checkpoint.every=0", *OFFLOAD), static),
    "always": (("schedule.strategy=always",), always),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_completes_and_trains_the_same_pairs(cluster: Cluster, reference: dict[PairKey, float], name: str) -> None:
    overrides, check = SCHEDULES[name]
    run = cluster.run(name, "eval.samples=1", *overrides)
    assert_counted_once(run, 4)
    assert [step.version for step in run.steps] == [1, 2, 3, 4]
    assert [step.num_samples for step in run.steps] == [8, 8, 8, 8]
    assert run.counters["stale_micro_batches"] == run.counters["masked_samples"] == run.counters["failed_tasks"] == 0
    check(run)
    assert_time_is_accounted_for(run, *run.summary["stage_seconds"])
    pairs = trained_pairs(cluster.journal, name)
    assert set(pairs) == set(reference)
    assert pairs == pytest.approx(reference, abs=1e-2)


def test_two_updates_a_rollout_and_the_best_of_the_groups(cluster: Cluster) -> None:
    """Each of the two rollouts feeds two global steps; the second is one version old by design."""
    run = cluster.run(
        "updates", "eval.enabled=false", "training.updates_per_rollout=2", "algorithm.options.best_of_n=2"
    )
    assert_counted_once(run, 4)
    assert [step.version for step in run.steps] == [1, 2, 3, 4]
    for step in run.steps:
        assert (step.num_groups, step.num_samples, step.num_selected) == (1, 4, 2)
        assert step.z0 == step.z == 2 * 2
    updates = [task for task in run.bodies(TaskRecord) if task.task == "update"]
    assert [task.version for task in updates] == [0, 0, 2, 2]
    assert [step.max_abs_log_ratio <= 1e-6 for step in run.steps] == [True, False, True, False]


def test_stale_micro_batches_at_the_tail(cluster: Cluster) -> None:
    """Half of a rollout may be made with the version before, and never with an older one."""
    run = cluster.run("stale", "eval.enabled=false", "checkpoint.every=0", "schedule.staleness=0.5")
    assert_counted_once(run, 4)
    assert [step.stale_micro_batches <= 1 for step in run.steps] == [True] * 4
    assert run.steps[0].stale_micro_batches == 0
    assert run.counters["stale_micro_batches"] >= 1
    for task in run.bodies(TaskRecord):
        if task.task == "update":
            assert task.version in (task.global_step, max(task.global_step - 1, 0))
    for step in run.steps:
        assert (step.max_abs_log_ratio > 1e-6) == (step.stale_micro_batches > 0)
