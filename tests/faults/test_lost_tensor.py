"""A version that does not bind whole is refused by name: never a flat curve."""

from pathlib import Path

from digend.exitcodes import ExitCode
from tests.e2e.cluster import Cluster
from tests.faults.leaky_package import write_job


def submit(cluster: Cluster, folder: Path, job: str, leaks: bool, code: ExitCode) -> str:
    path = write_job(cluster.folder, folder)
    words = ("--id", job, "--wait", "--set", f"model.options.leaks={str(leaks).lower()}")
    return cluster.ctl("submit", str(path), *words, code=code).stdout


def test_a_family_that_binds_all_but_one_tensor(healthy: Cluster, tmp_path: Path) -> None:
    said = submit(healthy, tmp_path, "leaky", True, ExitCode.TARGET_FAILED)
    assert "bound 2 of 3" in said
    assert "head/offset" in said
    run = healthy.over("leaky", "failed")
    assert not run.steps
    assert "bound 2 of 3" in run.summary["job"]["reason"]


def test_the_same_family_when_it_binds_all(healthy: Cluster, tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    submit(healthy, tmp_path, "not-leaky", False, ExitCode.OK)
    run = healthy.completed("not-leaky")
    assert [step.version for step in run.steps] == [1, 2]
    assert all(step.first_max_abs_log_ratio <= 1e-6 for step in run.steps)
