"""Owner and consumer of each way to move a trajectory, as processes that a benchmark talks to over a pipe.

Each end says `Done` for each command: seconds, CPU seconds since the last command, and by how much its memory has grown
at most. The first trajectory is a small one: what it leaves (modules, sockets, threads, a connection) is of the process
and not of a trajectory, so memory is counted from there. Must not know the other ways.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from digend.net.blobs import BlobClient, BlobServer
from digend.net.security import Security, grant, new_pair
from digend.wire.tensors import Array

MIB = 1024 * 1024
FIRST_BYTES = MIB // 16
"""Of the trajectory after which memory is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    seconds: float
    cpu_s: float
    grown: int
    """Bytes of the peak above what the process had before its first large trajectory."""
    what: Any = None
    """What the consumer has to know."""


class Meter:
    """Of this process."""

    def __init__(self) -> None:
        np.empty(0)  # imported before memory is looked at
        self._base = 0
        self._cpu_s = time.process_time()

    def begin(self) -> None:
        """From here on memory is counted."""
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what there is now
        self._base = _memory_bytes("VmRSS")

    def done(self, seconds: float, what: Any = None) -> Done:
        cpu_s, self._cpu_s = time.process_time() - self._cpu_s, time.process_time()
        return Done(seconds=seconds, cpu_s=cpu_s, grown=_memory_bytes("VmHWM") - self._base, what=what)


def _memory_bytes(what: str) -> int:
    """Of this process, as Linux tells it: what is resident (VmRSS), or was at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024


def both_sides() -> tuple[Security, Security]:
    """What owner and consumer have, each on the other's list."""
    owner, consumer = new_pair(), new_pair()
    listed = [
        grant("owner", frozenset({"driver", "trainer"}), owner.public),
        grant("consumer", frozenset({"generator"}), consumer.public),
    ]
    known = {each.public: each for each in listed}
    return Security(owner, known), Security(consumer, known)


def own_plain(line: Connection, security: None, num_bytes: int, folder: str) -> None:
    meter = Meter()
    data = os.urandom(FIRST_BYTES)
    socket: Any = zmq.Context.instance().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    while line.recv() == "make":
        line.send(meter.done(0.0, port))
        peer = socket.recv_multipart()[0]
        socket.send_multipart([peer, b"header", data], copy=False)
        line.recv()
        line.send(meter.done(0.0))
        if len(data) != num_bytes:
            meter.begin()
            data = os.urandom(num_bytes)


def take_plain(line: Connection, security: None, num_bytes: int, folder: str) -> None:
    meter = Meter()
    socket: Any = zmq.Context.instance().socket(zmq.DEALER)
    connected = None
    while True:
        port = line.recv()
        if port != connected:
            socket.connect(f"tcp://127.0.0.1:{port}")
            connected = port
        begun = time.perf_counter()
        socket.send(b"pull")
        frames = socket.recv_multipart(copy=False)
        seconds = time.perf_counter() - begun
        size = len(frames[1].buffer)
        del frames
        line.send(meter.done(seconds))
        if _is_first(size, num_bytes):
            meter.begin()


def own_digend(line: Connection, security: Security | None, num_bytes: int, folder: str) -> None:
    asyncio.run(_own(line, security, num_bytes, folder))


async def _own(line: Connection, security: Security | None, num_bytes: int, folder: str) -> None:
    meter = Meter()
    data = os.urandom(FIRST_BYTES)
    server = BlobServer.bind("tcp://127.0.0.1", f"owner-{os.getpid()}", Path(folder), security=security)
    serving = asyncio.create_task(server.serve())
    while await asyncio.to_thread(line.recv) == "make":
        begun = time.perf_counter()
        ref = server.put({"latents": Array("uint8", (len(data),), data)})
        line.send(meter.done(time.perf_counter() - begun, ref))
        await asyncio.to_thread(line.recv)
        server.free([ref.id])
        line.send(meter.done(0.0))
        if len(data) != num_bytes:
            meter.begin()
            data = os.urandom(num_bytes)
    serving.cancel()


def take_digend(line: Connection, security: Security | None, num_bytes: int, folder: str) -> None:
    asyncio.run(_take(line, security, num_bytes))


async def _take(line: Connection, security: Security | None, num_bytes: int) -> None:
    meter = Meter()
    client = BlobClient(security=security)
    while True:
        ref = await asyncio.to_thread(line.recv)
        begun = time.perf_counter()
        pulled = await client.pull(ref, timeout_s=60.0)
        seconds = time.perf_counter() - begun
        size = pulled["latents"].num_bytes
        del pulled
        line.send(meter.done(seconds))
        if _is_first(size, num_bytes):
            meter.begin()


def _is_first(size: int, num_bytes: int) -> bool:
    """Raises RuntimeError where what came is neither the first trajectory nor one of the others."""
    if size not in (FIRST_BYTES, num_bytes):
        raise RuntimeError(f"{size} bytes came")
    return size == FIRST_BYTES


OWNERS: Mapping[str, Callable[..., None]] = {"plain": own_plain, "digend": own_digend}
CONSUMERS: Mapping[str, Callable[..., None]] = {"plain": take_plain, "digend": take_digend}
