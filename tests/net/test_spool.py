"""Blobs on disk: the same bytes, within the quota, and no file is left behind, whoever dies."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from digend.net.blobs import BlobClient, BlobServer
from digend.net.spool import Spool, SpoolFull
from digend.wire.tensors import Array, from_numpy

KIB = 1024


def _tensors(num_bytes: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "odd": from_numpy(rng.integers(0, 256, 13, np.uint8)),
        "large": from_numpy(rng.integers(0, 256, num_bytes - 13, np.uint8)),
        "empty": Array("float32", (0, 3), b""),
    }


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "spool").rglob("*") if path.is_file() and path.name != "lock")


@pytest.fixture
async def consumer() -> AsyncIterator[BlobClient]:
    client = BlobClient()
    yield client
    client.close()


async def test_round_trip_through_the_disk(folder: Path, consumer: BlobClient) -> None:
    """Over the limit of memory a blob goes to disk, is pulled with the digests of what was put, and is freed."""
    server = BlobServer.bind("ipc", "life", folder, memory_bytes=64 * KIB, spool_bytes=3000 * KIB)
    serving = _serving(server)
    tensors = [_tensors(50 * KIB, 0), _tensors(50 * KIB, 1), _tensors(2500 * KIB, 2)]
    refs = [server.put(each) for each in tensors]
    assert (server.held_bytes, server.spooled_bytes) == (2600 * KIB, 2550 * KIB)
    assert _files(folder) == ["life-1", "life-2"]
    assert not server.full
    for ref, put in zip(refs, tensors, strict=True):
        pulled = await consumer.pull(ref)
        assert {name: bytes(each.data) for name, each in pulled.items()} == {
            name: bytes(each.data) for name, each in put.items()
        }
    server.free([refs[1].id])
    assert _files(folder) == ["life-2"]
    server.close()
    await serving
    assert _files(folder) == []


def _serving(server: BlobServer) -> "asyncio.Task[None]":
    return asyncio.create_task(server.serve())


async def test_a_consumer_that_never_pulls_fills_memory_and_says_so(folder: Path) -> None:
    """Past memory and quota nothing is lost: it stays in memory, and the process says that it is full and why."""
    server = BlobServer.bind("ipc", "life", folder, memory_bytes=100 * KIB, spool_bytes=150 * KIB)
    refs = [server.put(_tensors(50 * KIB, seed)) for seed in range(6)]
    assert server.held_bytes == 300 * KIB
    assert server.spooled_bytes <= 150 * KIB
    assert server.full
    assert "blobs.spool_gib" in server.trouble
    assert all(server.held(ref.id) is not None for ref in refs)
    server.free(ref.id for ref in refs[:3])
    assert not server.full
    assert server.trouble == ""
    server.close()


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """The kernel refuses more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_keeps_it_in_memory_and_says_so(folder: Path, consumer: BlobClient) -> None:
    server = BlobServer.bind("ipc", "life", folder, memory_bytes=10 * KIB, spool_bytes=9000 * KIB)
    serving = _serving(server)
    with files_of_at_most(20 * KIB):
        ref = server.put(_tensors(50 * KIB))
    assert (server.spooled_bytes, server.full) == (0, True)
    assert "too large" in server.trouble.lower() or "space" in server.trouble.lower()
    assert _files(folder) == []
    assert bytes((await consumer.pull(ref))["large"].data) == bytes(_tensors(50 * KIB)["large"].data)
    server.close()
    await serving


def test_the_quota_is_given_back(folder: Path) -> None:
    spool = Spool(folder, "life", 100 * KIB)
    spool.keep("a", _tensors(60 * KIB))
    with pytest.raises(SpoolFull, match=r"blobs\.spool_gib"):
        spool.keep("b", _tensors(60 * KIB))
    spool.free("a")
    spool.free("never there")
    assert spool.used_bytes == 0
    spool.keep("b", _tensors(60 * KIB))
    spool.close()
    assert _files(folder) == []
    with pytest.raises(SpoolFull):
        Spool(folder, "life", 0).keep("c", _tensors(1 * KIB))


OWNER = """
import sys, time
from pathlib import Path
from digend.net.spool import Spool
from digend.wire.tensors import Array
spool = Spool(Path(sys.argv[1]), "killed", 1 << 20)
spool.keep("blob", {"t": Array("uint8", (1000,), bytes(1000))})
print("ready", flush=True)
time.sleep(60)
"""


def test_files_of_a_killed_process_go_when_the_next_one_begins(folder: Path) -> None:
    """And not before: one that lives keeps its own."""
    with subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        Spool(folder, "beside", 0)
        assert _files(folder) == ["blob"]
        os.kill(owner.pid, 9)
        owner.wait()
    begun = time.monotonic()
    Spool(folder, "next", 0)
    assert _files(folder) == []
    assert time.monotonic() - begun < 5
