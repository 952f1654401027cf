"""More boxes for a cluster of tests: each a node file of its own and a `digend up` that joins the cluster's driver.

Owns their processes; nothing of them outlives the block. Invariant: all are on this machine, so what passes between
them goes over ipc.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from tests.e2e.cluster import KEEP, ROOT, Cluster, short_folder, wait_until, with_packages

GENERATOR = {"generator": {"slots": 1, "devices": ["cpu"]}}


@contextmanager
def joining(
    address: str, name: str, packages: Sequence[Path] = (), roles: Mapping[str, Any] = GENERATOR
) -> Iterator["subprocess.Popen[bytes]"]:
    """`digend up` of another box, begun but not waited for. `packages`: its folders like site-packages."""
    folder = short_folder()
    table = {"name": name, "address": address, "state": str(folder / "state"), "runs": str(folder / "runs")}
    (folder / "node.toml").write_text(tomli_w.dumps({**table, **roles}))
    command = [sys.executable, "-m", "daemons.main", "up", str(folder / "node.toml")]
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(
            command, cwd=ROOT, env=with_packages(packages), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield up
    finally:
        end(up)
        if not KEEP:
            shutil.rmtree(folder, ignore_errors=True)


def end(up: "subprocess.Popen[bytes]") -> int:
    """As a person does, by SIGTERM; what has not ended in a minute is killed. The exit code."""
    up.terminate()
    try:
        return up.wait(60)
    except subprocess.TimeoutExpired:
        up.kill()
        return up.wait()


def has_joined(cluster: Cluster, worker: str) -> None:
    """Waits until a worker has a session."""

    def present() -> bool:
        return any(node.name == worker and node.state in ("idle", "busy") for node in cluster.driver.nodes())

    wait_until(present, f"{worker} has joined")
