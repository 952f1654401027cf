"""Short socket folders (ipc paths have a limit), and servers that are closed whatever happens."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

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
