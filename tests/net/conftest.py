"""Short socket folders (ipc paths have a limit), and servers that are closed whatever happens."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from digend.net.blobs import BlobClient, BlobServer
from digend.net.server import ControlServer
from digend.wire.tensors import Array, from_numpy
from tests.net.keyed import Keys, Told

S = TypeVar("S", bound=BlobServer)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dg-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[ControlServer]:
    server = await ControlServer.bind(f"ipc://{folder}/driver.sock")
    yield server
    server.close(0)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits for what another thread or process does; the test's own deadline is 30 s."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def told() -> Told:
    return Told()


@asynccontextmanager
async def served(kind: type[S], folder: Path, instance: str = "life-1", data: str = "ipc") -> AsyncIterator[S]:
    """An owner of some kind at work."""
    server = kind.bind(data, instance, folder)
    assert isinstance(server, kind)
    task = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        server.close()
        await task


def random_array(num_bytes: int, seed: int = 0) -> Array:
    return from_numpy(np.random.default_rng(seed).integers(0, 256, num_bytes, np.uint8))


@pytest.fixture
async def owner(folder: Path) -> AsyncIterator[BlobServer]:
    async with served(BlobServer, folder) as server:
        yield server


@pytest.fixture
async def consumer() -> AsyncIterator[BlobClient]:
    client = BlobClient()
    yield client
    client.close()
    await asyncio.sleep(0)
