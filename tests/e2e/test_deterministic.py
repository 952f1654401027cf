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
