"""What a service manager is told of this process: ready, reloading, stopping, a line of status, signs of life.

Owns the conversation of sd_notify(3), datagrams to the socket NOTIFY_SOCKET. Must not know what a daemon does.
Invariant: nothing here raises or waits; without a manager nothing is sent.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

MAX_STATUS = 300
"""Characters; it is one line of `systemctl status`."""


class Notifier:
    """One process's line to its manager. `environ` is where NOTIFY_SOCKET and WATCHDOG_USEC are looked up."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.complaint = ""
        """Stands before every status until it is emptied: what a person must see to."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._watchdog_s = _watchdog_s(environ)
        self._said = ""
        self._words = ""

    def ready(self, words: str) -> None:
        """It does its work from now on; `words` is its first status."""
        self._tell("READY=1")
        self.status(words)

    def status(self, words: str) -> None:
        """What it does now, in a few words. Sent only where they changed."""
        self._words = words
        line = "; ".join(filter(None, (self.complaint, words)))
        line = " ".join(line.split())[:MAX_STATUS]
        if line != self._said:
            self._said = line
            self._tell(f"STATUS={line}")

    def reloading(self) -> None:
        """It reads its configuration again, until `reloaded`."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        self.ready(self._words)

    def stopping(self, words: str) -> None:
        """It was asked to stop and drains."""
        self._tell("STOPPING=1")
        self.status(words)

    async def keep_alive(self) -> None:
        """Signs of life for as long as the event loop turns, where the manager wants them."""
        while self._watchdog_s:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 4)

    def _tell(self, lines: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.setblocking(False)
                line.sendto(lines.encode(), self._address)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds without a sign of life after which the manager ends this process; 0 where it never does."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    with suppress(ValueError):
        return max(0, int(environ.get("WATCHDOG_USEC", "0"))) / 1e6
    return 0.0
