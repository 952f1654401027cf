"""Lets in who has a listed key: ZeroMQ asks it in every handshake of the sockets of its context (ZAP, RFC 27).

Owns the decision and the count of refusals. Must not know what is said later. Invariant: a key that is not listed, or
not for `roles`, never gets through, and on a trusted fabric no address outside of it; a flood of refusals is told
`TOLD` times in `EVERY_S`, not more.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

import zmq
from zmq.auth.asyncio import AsyncioAuthenticator

from digend.net.security import DOMAIN, Security

EVERY_S = 60.0
TOLD = 10
"""Different keys; one is told once in `EVERY_S`."""

Refused = Callable[[str, str], None]
"""(public key, address it came from) of a refused handshake; without a key where none is asked for."""

_ADDRESS, _MECHANISM = 3, 5
"""Where a ZAP request has them."""


class Porter(AsyncioAuthenticator):
    """For the sockets of one context, on the running event loop, from `start` to `stop`."""

    def __init__(
        self,
        context: "zmq.Context[Any]",
        security: Security,
        roles: Collection[str] | None,
        refused: Refused,
        *,
        clear: bool = False,
    ) -> None:
        """`roles`: one of them is enough; None: any role will do. `clear`: addresses are asked for instead of keys."""
        super().__init__(context)
        self._security = security
        self._roles = roles
        self._refused = refused
        self._clear = clear
        self._told: dict[str, float] = {}
        self._address = ""
        self.configure_curve_callback(DOMAIN, self)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Remembers the address, which the callback is not told. One handshake is answered after another."""
        self._address = msg[_ADDRESS].decode("ascii", "replace") if len(msg) > _ADDRESS else ""
        if self._clear and len(msg) > _MECHANISM and not self._security.trusts(self._address):
            self._send_zap_reply(msg[1], b"400", b"not on the trusted fabric")
            self._say_so("")
            return
        await super().handle_zap_message(msg)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether the key may come in."""
        public = key.decode("ascii")
        if admitted(self._security, public, self._roles):
            return True
        self._say_so(public)
        return False

    def _say_so(self, public: str) -> None:
        now_s = time.monotonic()
        self._told = {who: told_s for who, told_s in self._told.items() if now_s - told_s < EVERY_S}
        who = public or self._address
        if who not in self._told and len(self._told) < TOLD:
            self._told[who] = now_s
            self._refused(public, self._address)


def admitted(security: Security, public: str, roles: Collection[str] | None) -> bool:
    """Whether a key is listed, with one of `roles`."""
    grant = security.grant(public)
    return grant is not None and (roles is None or not grant.roles.isdisjoint(roles))
