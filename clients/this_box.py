"""What of digend lies on this box: the node file that describes it, or what the driver says of itself where it is here.

Owns the finding. Invariant: a box is named only where a node file or the driver says so; nothing is guessed from paths.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from clients.address import SYSTEM_NODE
from clients.api import Digend
from digend.net.client import ClientError
from digend.wire.views import DriverView


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisBox:
    """`name` as in node files. `node_file` is None where the driver told the rest."""

    name: str
    state: Path
    runs: Path
    journal: Path
    node_file: Path | None

    @property
    def logs(self) -> Path:
        """Where `digend up` keeps log files; there is no such folder under systemd."""
        return self.state / "logs"


def named_node_file(environ: Mapping[str, str] = os.environ, system_node: str = SYSTEM_NODE) -> Path | None:
    """--node of this command, else DIGEND_NODE, else the box's own; None where none is there."""
    context = click.get_current_context(silent=True)
    given = [context.params.get("node"), (context.find_root().obj or {}).get("node")] if context else []
    named = next((path for path in [*given, environ.get("DIGEND_NODE")] if path), None)
    if named:
        return Path(named)
    return Path(system_node) if Path(system_node).is_file() else None


def this_box(driver: Digend) -> ThisBox | None:
    """By a node file that is named, else by the driver where it is on this box; None where neither says. Raises
    ConfigError where the node file is bad."""
    path = named_node_file()
    if path is not None:
        return box_of(path)
    place = place_of(driver)
    if place is None or place.host != socket.gethostname():
        return None
    return ThisBox(
        name=place.node,
        state=Path(place.state),
        runs=Path(place.runs),
        journal=Path(place.journal),
        node_file=None,
    )


def box_of(node_file: Path) -> ThisBox:
    """What a node file describes. Raises ConfigError."""
    from digend.config.loader import load_node
    from digend.config.node import DriverNodeConfig

    node = load_node(node_file)
    driver = node.driver or DriverNodeConfig.model_validate({})
    state = Path(node.state)
    return ThisBox(
        name=node.name, state=state, runs=Path(node.runs), journal=state / driver.journal, node_file=node_file
    )


def place_of(driver: Digend) -> DriverView | None:
    """None where no driver answers."""
    try:
        driver.require_socket()
        return driver.place()
    except ClientError:
        return None
