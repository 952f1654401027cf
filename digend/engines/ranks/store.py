"""The store in which the ranks of a trainer find each other: torch's TCPStore, served by rank 0.

Owns its socket, and the way to another rank's. Invariants: it listens at the address that was given and at no other, on
a port that the system chose. Whoever is on the way to one that is gone can be told to give up.
"""

import socket
import threading
import time
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from digend.engines.protocols import TaskFault

BACKLOG = 128
ASK_S = 1.0
"""How long one attempt to reach a store may take before it is looked whether it is still wanted."""
PAUSE_S = 0.05


def serve(host: str) -> tuple[TCPStore, str]:
    """The store and its host:port. Raises TaskFault("config") for an address that this machine has not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.bind((host, 0))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise TaskFault("config", f"the ranks cannot meet at {host}: {error}") from error
    port = listening.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    return store, f"{host}:{port}"


def reach(address: str, timeout_s: float, left: threading.Event) -> TCPStore:
    """Another rank's. Raises RuntimeError where nobody answers in time, or once `left` is set.

    torch's own way there cannot be interrupted, so it is taken only once somebody listens.
    """
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    while (why := _deaf(host.strip("[]"), int(port))) is not None:
        if time.monotonic() - began > timeout_s:
            raise RuntimeError(f"nobody answers for {timeout_s:g} s: {why}")
        if left.wait(PAUSE_S):
            raise RuntimeError("told to leave")
    remaining = timedelta(seconds=max(timeout_s - (time.monotonic() - began), ASK_S))
    return TCPStore(host, int(port), is_master=False, timeout=remaining, wait_for_workers=False)


def _deaf(host: str, port: int) -> OSError | None:
    """Why nobody listens there; None where somebody does."""
    try:
        socket.create_connection((host, port), ASK_S).close()
    except OSError as error:
        return error
    return None
