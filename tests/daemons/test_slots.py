"""Ports of the worker processes of a box: each its own, in an order that a firewall can be told."""

import pytest

from daemons.slots import number_of
from daemons.worker.main import WorkerRole, data_address
from digend.config.node import NodeConfig

FULL = {"trainer": {"slots": 2}, "generator": {"slots": 3}, "reward": {"slots": 1}}


@pytest.mark.parametrize(
    ("role", "slot", "port"),
    [("trainer", 0, 5760), ("trainer", 1, 5761), ("generator", 0, 5762), ("generator", 2, 5764), ("reward", 0, 5765)],
)
def test_ports_follow_each_other(role: WorkerRole, slot: int, port: int) -> None:
    node = NodeConfig.model_validate({"data": "tcp://10.0.0.3", "data_port": 5760, **FULL})
    assert data_address(node, role, slot) == f"tcp://10.0.0.3:{port}"
    free = node.model_copy(update={"data_port": 0})
    assert data_address(free, role, slot) == "tcp://10.0.0.3"


def test_a_box_that_gets_a_trainer_later_keeps_its_other_ports() -> None:
    without = NodeConfig.model_validate({"generator": {}})
    with_one = NodeConfig.model_validate({"generator": {}, "trainer": {}})
    assert number_of(without, "generator", 0) == number_of(with_one, "generator", 0) == 1
