"""One cluster for all of tests/e2e: a first job on it imports diffusers in three processes."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, running, warm_up
from tests.e2e.pairs import PairKey, trained_pairs
from tests.e2e.run import Run


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A driver, a trainer, two generators, a reward process and a recorder. Tests give their jobs ids of their own."""
    with running() as cluster:
        warm_up(cluster)
        yield cluster


@pytest.fixture(scope="session")
def short(cluster: Cluster) -> Run:
    """The short job as it is, with one evaluation more."""
    return cluster.run("short", "eval.every=2")


@pytest.fixture(scope="session")
def reference(short: Run, cluster: Cluster) -> dict[PairKey, float]:
    """The short job's pairs."""
    return trained_pairs(cluster.journal, short.folder.name)
