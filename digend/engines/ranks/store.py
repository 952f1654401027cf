"""The store in which the ranks of a trainer find each other: torch's TCPStore, served by rank 0.

Owns its socket. Invariant: it listens at the address that was given and at no other, on a port that the system chose.
"""

import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from digend.engines.protocols import TaskFault

BACKLOG = 128


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


def reach(address: str, timeout_s: float) -> TCPStore:
    """Another rank's. Raises RuntimeError where nobody answers in time."""
    host, _, port = address.rpartition(":")
    timeout = timedelta(seconds=timeout_s)
    return TCPStore(host, int(port), is_master=False, timeout=timeout, wait_for_workers=False)
