"""What of digend lies on this box: the settings that describe it, or what the driver says of itself where it is here.

Owns the finding. Invariant: a box is named only where settings or the driver say so; nothing is guessed from paths.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from clients.api import Digend
from digend.config.layers import Places, file_names
from digend.net.client import ClientError
from digend.wire.views import DriverView


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisBox:
    """`name` as in settings. `places` is where those are, None where the driver told the rest."""

    name: str
    state: Path
    runs: Path
    journal: Path
    places: Places | None

    @property
    def logs(self) -> Path:
        """Where `digend up` keeps log files; there is no such folder under systemd."""
        return self.state / "logs"


def given_node() -> str | None:
    """--node of this command, before the verb or behind it."""
    context = click.get_current_context(silent=True)
    given = [context.params.get("node"), context.find_root().params.get("node")] if context else []
    return next((path for path in given if path), None)


def named_places(environ: Mapping[str, str] = os.environ) -> Places | None:
    """--node of this command, else DIGEND_NODE, else the files in /etc/digend; None where there are none."""
    places = Places.of(given_node(), environ=environ)
    if places.node_file:
        return places
    places = replace(places, system=True)
    return places if file_names(places, environ) else None


def this_box(driver: Digend) -> ThisBox | None:
    """By settings that describe it, else by the driver where it is on this box; None where neither says. Raises
    ConfigError where the settings are bad."""
    places = named_places()
    if places is not None:
        return box_of(places)
    place = place_of(driver)
    if place is None or place.host != socket.gethostname():
        return None
    return ThisBox(
        name=place.node,
        state=Path(place.state),
        runs=Path(place.runs),
        journal=Path(place.journal),
        places=None,
    )


def box_of(places: Places) -> ThisBox:
    """What settings describe. Raises ConfigError."""
    from digend.config.loader import load_settings
    from digend.config.node import DriverNodeConfig

    node = load_settings(places).config
    driver = node.driver or DriverNodeConfig.model_validate({})
    state = Path(node.state)
    return ThisBox(name=node.name, state=state, runs=Path(node.runs), journal=state / driver.journal, places=places)


def place_of(driver: Digend) -> DriverView | None:
    """None where no driver answers."""
    try:
        driver.require_socket()
        return driver.place()
    except ClientError:
        return None
