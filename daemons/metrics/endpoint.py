"""The HTTP endpoint of one daemon's metrics, and the file by which Prometheus finds it.

Owns the socket, its thread and `STATE/metrics/ROLE-SLOT.json` (Prometheus' file_sd format). Invariants: it listens
where the node file says and nowhere else, by default on this machine only; scrapes are answered on their own threads.
"""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from daemons.metrics.board import Board
from daemons.slots import number_of
from digend.config.node import NodeConfig
from digend.telemetry.logs import logger

_PLACES = {"driver": 0, "recorder": 1}
_FIRST_SLOT = 2


class CannotListen(Exception):
    """The port is taken or the address is not this machine's; the message says which key."""


class Endpoint:
    """Open from construction until `close`. `address`: host and port as they came to be."""

    def __init__(self, node: NodeConfig, role: str, slot: int, registry: CollectorRegistry) -> None:
        assert node.metrics is not None
        port = port_of(node, role, slot)
        try:
            self._server, self._thread = _listen(port, node.metrics.host, registry)
        except (OSError, OverflowError) as error:
            raise CannotListen(
                f"metrics: {node.metrics.host}:{port} cannot be used for {role} {slot}: {error}"
            ) from error
        self.address = f"{node.metrics.host}:{self._server.server_port}"
        self._file = Path(node.state) / "metrics" / f"{role}-{slot}.json"
        self._announce({"node": node.name, "role": role, "slot": str(slot)})
        logger().info("metrics", address=f"http://{self.address}/metrics")

    def close(self) -> None:
        self._file.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=1)

    def _announce(self, labels: dict[str, str]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps([{"targets": [self.address], "labels": labels}]) + "\n", encoding="utf-8")
        temporary.replace(self._file)


class Shown(Protocol):
    """What a daemon shows."""

    @property
    def board(self) -> Board: ...


@contextmanager
def serving(node: NodeConfig, role: str, slot: int, shown: Shown | None) -> Iterator[None]:
    """The endpoint of a daemon for as long as it runs, where the node file wants one. Raises CannotListen."""
    if node.metrics is None or shown is None:
        yield
        return
    endpoint = Endpoint(node, role, slot, shown.board.registry)
    try:
        yield
    finally:
        endpoint.close()


def port_of(node: NodeConfig, role: str, slot: int) -> int:
    """`metrics.port` is the driver's; then recorder, trainers, generators, rewards. 0: the kernel chooses for each."""
    port = node.metrics.port if node.metrics else 0
    if not port:
        return 0
    if role in _PLACES:
        return port + _PLACES[role]
    return port + _FIRST_SLOT + number_of(node, role, slot)


def _listen(port: int, host: str, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    logging.getLogger("prometheus_client").setLevel(logging.ERROR)
    server, thread = start_http_server(port, host, registry)
    return server, thread
