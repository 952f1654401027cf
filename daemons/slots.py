"""The order in which the worker processes of a box are counted, for ports that follow each other. Pure."""

from digend.config.node import NodeConfig


def number_of(node: NodeConfig, role: str, slot: int) -> int:
    """From 0 on: trainers, then generators, then rewards. A box without a trainer keeps a number for one, to be able to
    get one later."""
    before = 0
    for each, section in (("trainer", node.trainer), ("generator", node.generator), ("reward", node.reward)):
        if each == role:
            break
        before += section.slots if section else int(each == "trainer")
    return before + slot
