"""What digenctl takes from the settings: where the driver is, how long to wait for it, how tables look.

Almost every verb needs only these, so they are read without a model (pydantic), and validated as a whole only where one
of them is not plainly right. Invariant: a driver whose socket is in this folder comes before those that files name, and
after what was said for this very call.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clients.admission import KEY_VARIABLE, KeyPaths
from digend.config.layers import ETC_VARIABLE, NODE_VARIABLE, PREFIX, Layer, Layers, Places, gather, rebased, variable

DEFAULT_ADDRESS = "ipc://.digend/driver.sock"
"""Relative to the working directory: the root of a project whose node file says the same."""

KEYS = ("address", "client.reply_timeout_s", "client.header")
_USUAL = re.compile(r"ipc://.{1,90}|tcp://(127\.0\.0\.1|localhost):[0-9]{2,5}")
_KNOWN = {NODE_VARIABLE, ETC_VARIABLE, KEY_VARIABLE, *map(variable, KEYS)}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`reply_timeout_s`: seconds to wait for one reply; `header`: whether tables have their first line;
    `keys`: the box's key and the list, where there are some.
    """

    address: str
    reply_timeout_s: float = 5.0
    header: bool = True
    warnings: tuple[str, ...] = ()
    keys: KeyPaths | None = None


def client_settings(places: Places, environ: Mapping[str, str] = os.environ) -> ClientSettings:
    """What the layers say, the node file of `places` instead of files. Raises ConfigError."""
    if any(name.startswith(PREFIX) and name not in _KNOWN for name in environ):
        return _validated(places, environ)
    layers, problems = gather(places, KEYS, environ, more=local_layers(places))
    found = None if problems else _plain(layers)
    return found or _validated(places, environ)


def local_layers(places: Places) -> list[Layer]:
    """A driver that runs in this folder, unless a node file was named."""
    if places.node_file or places.system or not os.access(DEFAULT_ADDRESS.removeprefix("ipc://"), os.F_OK):
        return []
    table = rebased({"address": DEFAULT_ADDRESS}, Path.cwd())
    return [Layer("this folder", table, lambda key: "a driver's socket in this folder")]


def _plain(layers: Layers) -> ClientSettings | None:
    """Nothing where a value needs a closer look."""
    table = layers.table
    address = table.get("address", DEFAULT_ADDRESS)
    client = table.get("client", {})
    if "keys" in table or not isinstance(address, str) or not _USUAL.fullmatch(address) or not isinstance(client, dict):
        return None
    timeout, header = client.get("reply_timeout_s", 5.0), client.get("header", True)
    usable = isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0.05 <= timeout < float("inf")
    if not usable or not isinstance(header, bool) or client.keys() - {"reply_timeout_s", "header"}:
        return None
    address = str(rebased({"address": address}, layers.folder)["address"])
    return ClientSettings(address, float(timeout), header)


def _validated(places: Places, environ: Mapping[str, str]) -> ClientSettings:
    from digend.config.loader import load_settings, warnings

    loaded = load_settings(places, environ, more=local_layers(places))
    client, keys = loaded.config.client, loaded.config.keys
    return ClientSettings(
        loaded.config.address,
        client.reply_timeout_s,
        client.header,
        tuple(warnings(loaded.layers)),
        (keys.private, keys.allowed) if keys else None,
    )
