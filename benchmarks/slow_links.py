"""Hosts with slow links on one machine: a proxy between every two processes, with a rate for each host and direction.

Owns the rates. Must not know what passes. Invariant: the bytes that leave a host, and those that reach one, are each at
most `rate` a second over all its connections; the way back (requests) is not limited.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

CHUNK_BYTES = 16 * 1024
BUFFER_BYTES = 64 * 1024
CATCH_UP_S = 0.05
"""A link that was held up by a busy machine may make good so much."""


class Link:
    """One direction of one host's link."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_s = 0.0
        self.num_bytes = 0

    async def take(self, num_bytes: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free_s = max(now - CATCH_UP_S, self._free_s) + num_bytes / self._rate
        self.num_bytes += num_bytes
        if self._free_s > now:
            await asyncio.sleep(self._free_s - now)


class Links:
    """`ports` are where blob servers listen, by host; `doors[receiver, host]` is where the receiver reaches a host."""

    def __init__(self, rate: float, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self.up = {host: Link(rate) for host in ports}
        self.down = {host: Link(rate) for host in ports}
        self.doors: dict[tuple[str, str], int] = {}

    async def open(self, receiver: str) -> None:
        for host in self._ports:
            if host != receiver:
                server = await asyncio.start_server(self._between(receiver, host), "127.0.0.1", 0, limit=BUFFER_BYTES)
                self.doors[receiver, host] = server.sockets[0].getsockname()[1]

    def _between(
        self, receiver: str, host: str
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def connected(near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self._ports[host], limit=BUFFER_BYTES)
            for writer in (near_out, far_out):
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            back = (self.up[host], self.down[receiver])
            with suppress(asyncio.CancelledError, OSError):  # the benchmark is over
                await asyncio.gather(_pass(near_in, far_out, ()), _pass(far_in, near_out, back))

        return connected


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, links: tuple[Link, ...]) -> None:
    while data := await reader.read(CHUNK_BYTES):
        for link in links:
            await link.take(len(data))
        writer.write(data)
        await writer.drain()
    writer.close()
