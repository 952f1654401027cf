"""Owners that are gone, die or stop in mid-pull: BlobLost, in time, and never other bytes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from digend.net.blob_limits import MAX_CHUNK_BYTES
from digend.net.blobs import BlobClient, BlobLost, BlobServer
from digend.wire.refs import BlobRef
from tests.net.conftest import random_array, served


async def test_another_life_at_the_same_address_does_not_have_it(folder: Path, consumer: BlobClient) -> None:
    async with served(BlobServer, folder, "life-1", "tcp://127.0.0.1") as first:
        ref = first.put({"t": random_array(10)})
        address = first.address
        await consumer.pull(ref)
    async with served(BlobServer, folder, "life-2", address) as second:
        second.put({"t": random_array(10)})
        with pytest.raises(BlobLost) as lost:
            await consumer.pull(ref)
        if "broke" in str(lost.value):  # it was still asked over the first life's connection
            with pytest.raises(BlobLost) as lost:
                await consumer.pull(ref)
        assert "life-2 does not hold it" in str(lost.value)
        assert await consumer.pull(second.put({"t": random_array(10)}))


OWNER = """
import asyncio, os, sys
from pathlib import Path
from digend.net.blobs import BlobServer
from digend.wire.tensors import Array
class Dying(BlobServer):
    left = int(sys.argv[2])
    def _reply(self, frames):
        if not self.left:
            os.kill(os.getpid(), 9)
        self.left -= 1
        return super()._reply(frames)
async def main():
    server = Dying.bind("ipc", f"life-{os.getpid()}", Path(sys.argv[1]))
    ref = server.put({"t": Array("uint8", (64 << 20,), bytes(64 << 20))})
    print(ref.owner, ref.instance, ref.id, ref.num_bytes, ref.digest, flush=True)
    await server.serve()
asyncio.run(main())
"""


def stop(process: subprocess.Popen[str]) -> None:
    """Returns once the process has really stopped."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


@contextmanager
def dying_owner(folder: Path, replies: int) -> Iterator[tuple[subprocess.Popen[str], BlobRef]]:
    """A process that holds 64 MiB and kills itself with signal 9 after so many replies."""
    command = [sys.executable, "-c", OWNER, str(folder), str(replies)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner, instance, blob, num_bytes, digest = process.stdout.readline().split()
        try:
            yield process, BlobRef(owner=owner, instance=instance, id=blob, num_bytes=int(num_bytes), digest=digest)
        finally:
            process.kill()


@pytest.mark.parametrize("replies", [0, 1, 5])
async def test_an_owner_killed_in_the_middle_is_lost(folder: Path, consumer: BlobClient, replies: int) -> None:
    with dying_owner(folder, replies) as (process, ref):
        start = time.monotonic()
        with pytest.raises(BlobLost, match=r"the connection to .* broke"):
            await consumer.pull(ref, timeout_s=60)
        assert time.monotonic() - start < 30
        assert process.wait(60) == -9


async def test_an_owner_that_is_stopped_in_the_middle_is_lost(folder: Path, consumer: BlobClient) -> None:
    with dying_owner(folder, 100) as (process, ref):
        await consumer.pull(ref, [])
        stop(process)
        with pytest.raises(BlobLost, match=r"silent for 0\.3 s"):
            await consumer.pull(ref, timeout_s=0.3)


async def test_nobody_there_is_lost(folder: Path, consumer: BlobClient) -> None:
    for owner in (f"ipc://{folder}/nobody.sock", "tcp://10.1.2.3:4"):
        ref = BlobRef(owner=owner, instance="i", id="i-0", num_bytes=1, digest="d")
        with pytest.raises(BlobLost):
            await consumer.pull(ref, timeout_s=0.1)


class Slow(BlobServer):
    """Takes its time for each chunk."""

    async def serve(self) -> None:
        while (arrival := await self._doorway.receive()) is not None:
            await asyncio.sleep(0.02)
            self._doorway.channel.send([arrival.peer, *self._reply(arrival)])


async def test_each_chunk_renews_the_patience_of_all_pulls(folder: Path, consumer: BlobClient) -> None:
    owner = Slow.bind("ipc", "slow", folder)
    task = asyncio.create_task(owner.serve())
    refs = [owner.put({"t": random_array(MAX_CHUNK_BYTES + 1, number)}) for number in range(2)]
    start = time.monotonic()
    await asyncio.gather(*(consumer.pull(ref, timeout_s=1.0) for ref in refs))
    assert time.monotonic() - start > 1.0
    owner.close()
    await task


def _socket_file(address: str) -> Path:
    return Path(address.removeprefix("ipc://"))


async def test_socket_files_of_killed_processes_are_swept(folder: Path) -> None:
    async with served(BlobServer, folder, "alive") as alive:
        with dying_owner(folder, 0) as (process, ref):
            process.kill()
        files = [_socket_file(ref.owner), _socket_file(alive.address)]
        async with served(BlobServer, folder, "too early"):
            assert [file.exists() for file in files] == [True, True]
        for file in files:
            os.utime(file, (0, 0))
        async with served(BlobServer, folder, "later"):
            assert [file.exists() for file in files] == [False, True]
