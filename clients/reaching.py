"""Where the driver of a command line is, and with which key it is asked: options of the verb, of digenctl, settings."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clients.address import ClientSettings, client_settings
from clients.admission import find_security
from digend.config.layers import Places

if TYPE_CHECKING:
    from clients.api import Digend
    from digend.net.security import Security


@dataclass(frozen=True, slots=True)
class Reach:
    settings: ClientSettings
    address: str
    security: "Security | None"

    def connect(self, timeout_s: float | None = None) -> "Digend":
        """`timeout_s`: seconds for one reply, in place of what the settings say. Waits for nobody."""
        from clients.api import Digend

        return Digend(self.address, timeout_s or self.settings.reply_timeout_s, self.security)


def reach(ctx: click.Context, address: str | None, node: str | None, key: str | None) -> Reach:
    """What a verb was told comes before what was said before the verb. Raises ConfigError, BadAddress."""
    before = ctx.find_root().params
    given = before if address is None and node is None else {}
    settings = client_settings(Places.of(node or given.get("node"), environ=os.environ))
    where = address or given.get("address") or settings.address
    return Reach(settings, where, find_security(key or before.get("key"), settings.keys, where))
