"""One cluster for all of tests/faults, quick to call a worker slow. Its processes die and come back; it must not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, running, warm_up
from tests.faults.leaky_package import install

ROLES = {
    "driver": {},
    "recorder": True,
    "trainer": {"device": "cpu"},
    "generator": {"slots": 1, "devices": ["cpu"]},
    "reward": {"slots": 1, "devices": ["cpu"]},
}
TIMING = {"heartbeat_s": 0.5, "torpid_s": 3.0, "lost_s": 10.0, "rejoin_s": 30.0}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A driver, a trainer, a generator, a reward process and a recorder, with a family of a package of its own."""
    package: Path = install(tmp_path_factory.mktemp("site-packages"))
    with running(roles=ROLES, timing=TIMING, packages=(package,)) as cluster:
        warm_up(cluster)
        yield cluster


@pytest.fixture
def healthy(cluster: Cluster) -> Cluster:
    """The cluster, once all of its workers are back from the test before."""
    cluster.all_present(4)
    return cluster
