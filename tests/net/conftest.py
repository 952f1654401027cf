"""Short socket folders (ipc paths have a limit), and servers that are closed whatever happens."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from digend.net.blobs import BlobClient, BlobServer
from digend.net.server import ControlServer
from tests.net.keyed import Keys, Told


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
async def serving(folder: Path, instance: str = "life-1", data: str = "ipc") -> AsyncIterator[BlobServer]:
    server = BlobServer.bind(data, instance, folder)
    task = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        server.close()
        await task


@pytest.fixture
async def owner(folder: Path) -> AsyncIterator[BlobServer]:
    async with serving(folder) as server:
        yield server


@pytest.fixture
async def consumer() -> AsyncIterator[BlobClient]:
    client = BlobClient()
    yield client
    client.close()
    await asyncio.sleep(0)
