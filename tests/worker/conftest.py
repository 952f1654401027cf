from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest_asyncio

from tests.worker.scripted import Cluster, ScriptedDriver, driver_at


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Under a short path: Unix sockets have short names."""
    with TemporaryDirectory(prefix="dg") as folder:
        made = Cluster(Path(folder))
        yield made
        await made.close()


@pytest_asyncio.fixture
async def driver(cluster: Cluster) -> AsyncIterator[ScriptedDriver]:
    async with driver_at(cluster.address) as made:
        yield made
