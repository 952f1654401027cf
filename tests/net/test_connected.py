"""Waiting for a driver, where the connection is closed meanwhile or was before: no error, and no end of its own."""

import asyncio
from pathlib import Path

import pytest

from digend.net.link import Link


@pytest.mark.parametrize("closed_first", [False, True])
async def test_a_closed_link_is_never_connected(tmp_path: Path, closed_first: bool) -> None:
    link = Link.connect(f"ipc://{tmp_path}/nobody.sock")
    if closed_first:
        link.close()
    waiting = asyncio.create_task(link.connected())
    await asyncio.sleep(0.05)
    link.close()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
