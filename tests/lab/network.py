"""Two network namespaces with a wire between them, for hosts that tests cut off from each other.

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
ADDRESSES = ("10.91.0.1", "10.91.0.2")


@dataclass(frozen=True)
class Network:
    """`namespaces` are those of `ADDRESSES`."""

    namespaces: tuple[str, str]
    control: str

    def change(self, **quality: float | bool) -> None:
        """Keys of `wire.Quality`; the others stay."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(json.dumps(quality).encode(), self.control)


@contextmanager
def connected() -> Iterator[Network]:
    """A wire without faults."""
    mark = uuid4().hex[:6]
    names = (f"dg-a-{mark}", f"dg-b-{mark}")
    with TemporaryDirectory(prefix="dg") as folder:
        network = Network(names, str(Path(folder, "wire")))
        wire = None
        try:
            for name in names:
                subprocess.run(["ip", "netns", "add", name], check=True)
            ends = [
                word for name, address in zip(names, ADDRESSES, strict=True) for word in (name, "dg0", f"{address}/24")
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
