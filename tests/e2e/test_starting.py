"""Daemons that cannot start say why and end with 78; what runs already is not disturbed."""

import socket
from pathlib import Path

import pytest
import tomli_w

from digend.exitcodes import ExitCode
from tests.e2e.cluster import Cluster, digenctl, digend


def node_file(folder: Path, **values: object) -> str:
    """A node with a driver alone."""
    table = {"name": "n", "state": str(folder / "state"), "runs": str(folder / "runs"), "driver": {}, **values}
    path = folder / "node.toml"
    path.write_text(tomli_w.dumps(table))
    return str(path)


def refused(*words: str) -> str:
    """What a program says that must end with 78."""
    process = digend(*words)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.BAD_CONFIG, said
    assert "Traceback" not in said
    return said


def test_a_second_driver_on_the_address(cluster: Cluster, tmp_path: Path) -> None:
    said = refused("driver", "--node", node_file(tmp_path, address=cluster.address))
    assert f"{cluster.folder}/driver.sock" in said
    assert str(cluster.pid("driver")) in said
    cluster.ctl("status")


def test_a_second_up_of_the_same_node(cluster: Cluster) -> None:
    assert "another `digend up`" in refused("up", str(cluster.node_file))
    cluster.ctl("status")


@pytest.mark.parametrize("program", ["up", "driver"])
def test_a_port_in_use(tmp_path: Path, program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        path = node_file(tmp_path, address=address)
        said = refused(program, *(("--node",) if program == "driver" else ()), path)
    assert address in said


@pytest.mark.parametrize("program", ["up", "driver"])
def test_an_ipc_path_that_is_too_long(tmp_path: Path, program: str) -> None:
    path = node_file(tmp_path, address=f"ipc://{tmp_path}/{'x' * 120}.sock")
    assert "107" in refused(program, *(("--node",) if program == "driver" else ()), path)


def test_no_driver(tmp_path: Path) -> None:
    done = digenctl("status", "--address", f"ipc://{tmp_path}/d.sock", code=ExitCode.DRIVER_UNREACHABLE)
    assert "digend up" in done.stderr
