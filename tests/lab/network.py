"""Network namespaces with a wire or a hub between them, for hosts that tests slow down or cut off from each other.

Owns the namespaces and the process of the wire; nothing of them is left behind.
"""

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

SCRIPT = Path(__file__).with_name("wire.py")
PYTHON = "/usr/bin/python3"
ADDRESSES = tuple(f"10.91.0.{number}" for number in range(1, 9))
"""Of the hosts, in order."""


@dataclass(frozen=True)
class Network:
    """`namespaces` are those of the first of `ADDRESSES`."""

    namespaces: tuple[str, ...]
    control: str

    def change(self, host: int | None = None, **quality: float | bool) -> None:
        """Keys of `wire.Quality`, of one host's link or of all; the others stay."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(json.dumps({"host": host, **quality}).encode(), self.control)

    def inside(self, host: int) -> list[str]:
        """What a command line begins with that runs on a host."""
        return ["ip", "netns", "exec", self.namespaces[host]]


@contextmanager
def connected(num_hosts: int = 2) -> Iterator[Network]:
    """A network without faults."""
    mark = uuid4().hex[:6]
    names = tuple(f"dg-{'abcdefgh'[index]}-{mark}" for index in range(num_hosts))
    with TemporaryDirectory(prefix="dg") as folder:
        network = Network(names, str(Path(folder, "wire")))
        wire = None
        try:
            for name in names:
                subprocess.run(["ip", "netns", "add", name], check=True)
            ends = [
                word for name, address in zip(names, ADDRESSES, strict=False) for word in (name, "dg0", f"{address}/24")
            ]
            wire = subprocess.Popen([PYTHON, str(SCRIPT), network.control, *ends], stdout=subprocess.PIPE, text=True)
            assert wire.stdout is not None
            assert wire.stdout.readline() == "ready\n"
            yield network
        finally:
            if wire is not None:
                wire.kill()
                wire.communicate()
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
