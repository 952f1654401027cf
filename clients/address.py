"""Where the driver is: an option, a node file, the environment, or the place where a node file puts it by default."""

import os
from collections.abc import Mapping

DEFAULT_ADDRESS = "ipc://.digend/driver.sock"
"""Relative to the working directory: the root of a project whose node file says the same."""


def find_address(address: str | None, node: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The first that is given of: the address, the node file, DIGEND_ADDRESS, DIGEND_NODE, the default.

    Raises ConfigError where the node file is bad.
    """
    if address is None and node is None:
        address, node = environ.get("DIGEND_ADDRESS"), environ.get("DIGEND_NODE")
    if address:
        return address
    if node:
        from digend.config.loader import load_node

        return load_node(node).address
    return DEFAULT_ADDRESS
