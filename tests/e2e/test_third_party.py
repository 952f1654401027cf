"""Somebody else's package, installed by pip, through the daemons: its family, its algorithm and its reward at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.e2e.cluster import Cluster, digenctl, running
from tests.e2e.run import assert_counted_once
from tests.plugins.package import follow

ROLES = {
    "driver": {},
    "recorder": True,
    "trainer": {"device": "cpu"},
    "generator": {"slots": 1, "devices": ["cpu"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where docs/write-a-package.md was followed."""
    here = tmp_path_factory.mktemp("pocket")
    follow(here)
    return here


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with running(roles=ROLES, packages=[folder / "site-packages"]) as cluster:
        yield cluster


def test_a_job_of_two_global_steps(cluster: Cluster, folder: Path) -> None:
    cluster.ctl("submit", str(folder / "pocket.toml"), "--id", "pocket")
    run = cluster.completed("pocket")
    assert_counted_once(run, 2)
    steps = [line for line in run.metrics if line["kind"] == "step"]
    assert all(line["train/max_abs_log_ratio"] <= 1e-6 for line in steps)
    assert all("component/redness.darkness" in line for line in steps)
    before, after = (
        load_file(folder / "head.safetensors"),
        load_file(Path(run.summary["pipeline"]) / "head.safetensors"),
    )
    assert set(after) == set(before)
    assert all((after[name] != before[name]).any() for name in before)


def test_its_options_are_checked_at_submit(cluster: Cluster, folder: Path) -> None:
    refused = cluster.ctl("submit", str(folder / "pocket.toml"), "--set", "algorithm.options.base_line=1", code=78)
    assert "did you mean algorithm.options.baseline?" in refused.stderr


def test_where_it_is_not_installed_the_job_is_refused(folder: Path) -> None:
    refused = digenctl("submit", str(folder / "pocket.toml"), "--check", code=78)
    assert "unknown model family 'pocket'" in refused.stderr
