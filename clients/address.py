"""Where the driver is: an option, a node file, the environment, or one of the places where node files put it."""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_ADDRESS = "ipc://.digend/driver.sock"
"""Relative to the working directory: the root of a project whose node file says the same."""

SYSTEM_NODE = "/etc/digend/node.toml"
"""The node file of a box that runs digend under systemd."""


def find_address(
    address: str | None, node: str | None, environ: Mapping[str, str] = os.environ, system_node: str = SYSTEM_NODE
) -> str:
    """The first that is given of: the address, the node file, DIGEND_ADDRESS, DIGEND_NODE.

    Else the default where its socket is there, else what `system_node` says where there is one, else the default.
    Raises ConfigError where the node file is bad.
    """
    if address is None and node is None:
        address, node = environ.get("DIGEND_ADDRESS"), environ.get("DIGEND_NODE")
    if address:
        return address
    if not node and not Path(DEFAULT_ADDRESS.removeprefix("ipc://")).exists() and Path(system_node).exists():
        node = system_node
    if node:
        from digend.config.loader import load_node

        return load_node(node).address
    return DEFAULT_ADDRESS
