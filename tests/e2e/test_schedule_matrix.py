"""Every combination of cut, strategy, scorer and updates a rollout: it completes, with every pair trained once."""

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.pairs import PairKey, trained_pairs
from tests.e2e.run import assert_counted_once, assert_time_is_accounted_for

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("scoring", ["colocated", "dedicated"])
@pytest.mark.parametrize("strategy", ["never", "always", "static:1", "bts", "planned"])
@pytest.mark.parametrize("partition", ["gap", "batch", "naive"])
def test_it_completes(
    cluster: Cluster, reference: dict[PairKey, float], partition: str, strategy: str, scoring: str, updates: int
) -> None:
    name = f"{partition}-{strategy.replace(':', '-')}-{scoring}-{updates}"
    run = cluster.run(
        name,
        "eval.enabled=false",
        f"schedule.partition={partition}",
        f"schedule.strategy={strategy}",
        f"schedule.scoring={scoring}",
        f"training.updates_per_rollout={updates}",
        "training.timestep_width=0",
    )
    assert_counted_once(run, 4)
    assert_time_is_accounted_for(run, *run.summary["stage_seconds"])
    pairs = trained_pairs(cluster.journal, name)
    assert len(pairs) == (4 if updates == 1 else 2) * 2 * 4 * 2
    if updates == 1:
        assert pairs == pytest.approx(reference, abs=1e-2)
