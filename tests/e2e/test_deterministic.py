"""`deterministic = true`: the same seed gives the same weights, bit for bit, however the processes raced."""

import pytest

from tests.e2e.cluster import Cluster

BRIEF = (
    "training.deterministic=true",
    "training.global_steps=2",
    "eval.enabled=false",
    "checkpoint.every=0",
    "schedule.strategy=always",
)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("disaggregated", "schedule.scoring=colocated"),
        ("colocated", "schedule.generators=[]"),
        ("stale", "schedule.staleness=0.5"),
    ],
)
def test_the_same_seed_gives_the_same_weights(cluster: Cluster, name: str, where: str) -> None:
    first, second = (cluster.run(f"same-{name}-{number}", *BRIEF, where).weights() for number in range(2))
    assert first == second


def test_another_seed_gives_other_weights(cluster: Cluster) -> None:
    first, second = (cluster.run(f"seed-{seed}", *BRIEF, f"seed={seed}").weights() for seed in (0, 1))
    assert first != second


def test_staleness_0_is_the_on_policy_run_bit_for_bit(cluster: Cluster) -> None:
    """On-policy is one process that generates, scores and trains in turn; each sample has a forward pass of its own, so
    that it does not matter who makes it. Half of the micro-batches stale give other weights."""
    alone = (*BRIEF, "sampling.rollout_batch=1")
    on_policy = cluster.run("on-policy", *alone, "schedule.generators=[]").weights()
    assert cluster.run("staleness-0", *alone, "schedule.staleness=0.0").weights() == on_policy
    assert cluster.run("staleness-half", *alone, "schedule.staleness=0.5").weights() != on_policy
