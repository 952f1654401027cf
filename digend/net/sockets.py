"""How every socket of digend is set up: limits, liveness of connections, and closing. The only place with
options.

Invariant: a socket that left here drops a peer that sends a frame over its limit, notices a dead connection,
and never waits at the end of the process.
"""

from typing import Any

import zmq

from digend.wire.protocol import MAX_MESSAGE_BYTES

HEARTBEAT_MS = 5_000
"""ZMTP heartbeats find cut connections. Slow processes are found by the application's own, which are
stricter.
"""
HEARTBEAT_TIMEOUT_MS = 30_000
MAX_FRAME_BYTES = 4 * MAX_MESSAGE_BYTES
"""Between the limit of a message and this one, the peer is told; past this one, its connection is cut."""
QUEUE_MESSAGES = 1_000
RECONNECT_MS = 50
RECONNECT_MAX_MS = 1_000


def prepare(socket: Any, endpoint: str, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
    """Options of all sockets (zmq.Socket or its asyncio form). Before bind or connect, to a resolved address."""
    socket.setsockopt(zmq.IPV6, "[" in endpoint)  # names are looked up as IPv4
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)


def prepare_router(socket: Any, endpoint: str, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
    """A message to an unknown or full peer is an error, not a loss in silence."""
    prepare(socket, endpoint, max_frame_bytes=max_frame_bytes)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)


def prepare_dealer(
    socket: Any, endpoint: str, *, max_frame_bytes: int = MAX_FRAME_BYTES, waiting_messages: int = QUEUE_MESSAGES
) -> None:
    """Queues only for a connection that stands, so that a new driver does not get what was meant for the
    last one. No more than `waiting_messages` are read before the process takes them.
    """
    prepare(socket, endpoint, max_frame_bytes=max_frame_bytes)
    socket.setsockopt(zmq.RCVHWM, waiting_messages)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
