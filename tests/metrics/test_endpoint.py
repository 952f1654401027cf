"""The endpoint: where it listens, how it is found, what a taken port says."""

import json
import socket
import urllib.request
from pathlib import Path

import pytest

from daemons.metrics.endpoint import CannotListen, port_of, serving
from daemons.metrics.recorder import RecorderMetrics
from digend.config.node import NodeConfig


def _node(folder: Path, **metrics: object) -> NodeConfig:
    return NodeConfig.model_validate(
        {"state": str(folder), "generator": {"slots": 3}, "reward": {"slots": 2}, "metrics": metrics}
    )


def test_a_free_port_is_told_in_a_file_that_goes_with_it(tmp_path: Path) -> None:
    with serving(_node(tmp_path), "recorder", 0, RecorderMetrics()):
        (found,) = json.loads((tmp_path / "metrics" / "recorder-0.json").read_text())
        assert found["labels"] == {"node": "local", "role": "recorder", "slot": "0"}
        (target,) = found["targets"]
        assert target.startswith("127.0.0.1:")
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        assert 'digend_build_info{version="' in text
        assert "python_info" not in text, "the global registry is not shown"
    assert not list((tmp_path / "metrics").iterdir())


def test_without_the_table_there_is_no_socket(tmp_path: Path) -> None:
    node = NodeConfig.model_validate({"state": str(tmp_path)})
    with serving(node, "recorder", 0, RecorderMetrics()):
        assert not (tmp_path / "metrics").exists()


def test_a_port_that_is_taken_names_the_key(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        node = _node(tmp_path, port=other.getsockname()[1])
        refused = pytest.raises(CannotListen, match=r"metrics: 127\.0\.0\.1:\d+ cannot be used for driver 0")
        with refused, serving(node, "driver", 0, RecorderMetrics()):
            pass


def test_every_daemon_of_a_box_has_a_port_of_its_own(tmp_path: Path) -> None:
    node = _node(tmp_path, port=9460)
    daemons = [("driver", 0), ("recorder", 0), ("trainer", 0)]
    daemons += [("generator", slot) for slot in range(3)] + [("reward", slot) for slot in range(2)]
    assert [port_of(node, *daemon) for daemon in daemons] == list(range(9460, 9468))
    assert port_of(_node(tmp_path), "driver", 0) == 0


def test_further_trainers_move_the_ports_behind_them(tmp_path: Path) -> None:
    roles = {"trainer": {"slots": 2}, "generator": {"slots": 1}, "reward": {"slots": 1}}
    node = NodeConfig.model_validate({"state": str(tmp_path), "metrics": {"port": 9460}, **roles})
    daemons = [("trainer", 0), ("trainer", 1), ("generator", 0), ("reward", 0)]
    assert [port_of(node, *daemon) for daemon in daemons] == list(range(9462, 9466))
