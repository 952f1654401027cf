"""A blob pulled from its owner and from those who pull it too: the same bytes, little of them from the owner."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from digend.net.blob_limits import CHUNK_BYTES
from digend.net.blobs import BlobClient, BlobCorrupt, BlobLost, BlobServer, Held
from digend.net.layout import Part
from digend.wire.pulls import Pull
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array, from_numpy, manifest_of, pack_manifest
from tests.net.conftest import served


class Counting(BlobServer):
    """Knows what it sent, and takes its time for it where `pause_s` says so."""

    sent_bytes = 0
    pause_s = 0.0
    damage = False
    mute = False

    def _chunk(self, pull: Pull) -> list[Any]:
        frames = super()._chunk(pull)
        self.sent_bytes += sum(map(len, frames[1:]))
        return [frames[0], *(bytes(len(data)) for data in frames[1:])] if self.damage else frames

    async def serve(self) -> None:
        while (arrival := await self._doorway.receive()) is not None:
            if self.mute:
                continue
            frames = self._reply(arrival)
            if len(frames) > 1:
                await asyncio.sleep(self.pause_s)
            with suppress(zmq.ZMQError):  # gone meanwhile
                self._doorway.channel.send([arrival.peer, *frames])


def _weights(num_pieces: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "large": from_numpy(rng.integers(0, 256, num_pieces * CHUNK_BYTES - 3, np.uint8)),
        "small": from_numpy(rng.integers(0, 256, 1000, np.uint8)),
        "empty": Array("float32", (0,), b""),
    }


async def _pull(ref: BlobRef, server: BlobServer, workers: list[str], timeout_s: float = 5.0) -> dict[str, Array]:
    client = BlobClient()
    try:
        return await client.pull_shared(ref, workers, server.share, timeout_s)
    finally:
        client.close()
        await asyncio.sleep(0)


def _equal(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return list(one) == list(other) and all(bytes(one[name].data) == bytes(other[name].data) for name in one)


async def test_four_receivers_share_what_a_slow_owner_sends(folder: Path) -> None:
    weights = _weights(16)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(served(Counting, folder, "owner"))
        owner.pause_s = 0.06
        receivers = [await stack.enter_async_context(served(Counting, folder, f"r{number}")) for number in range(4)]
        ref = owner.put(weights)
        addresses = [each.address for each in receivers]
        pulled = await asyncio.gather(*(_pull(ref, each, addresses) for each in receivers))
        assert all(_equal(each, weights) for each in pulled)
        assert owner.sent_bytes < 2.5 * ref.num_bytes, "four times without the others"
        for each in receivers:
            each.free([ref.id])
        late = await stack.enter_async_context(served(Counting, folder, "late"))
        assert _equal(await _pull(ref, late, addresses), weights)


async def test_one_that_comes_later_leaves_the_owner_alone(folder: Path) -> None:
    weights = _weights(16)
    async with (
        served(Counting, folder, "owner") as owner,
        served(Counting, folder, "first") as first,
        served(Counting, folder, "second") as second,
    ):
        ref = owner.put(weights)
        first.share(ref.id, Held(pack_manifest(manifest_of(weights)), weights, ref.num_bytes))
        owner.pause_s = 0.05
        assert _equal(await _pull(ref, second, [first.address]), weights)
        assert first.sent_bytes > 0.5 * ref.num_bytes


async def test_a_worker_that_sends_what_is_wrong_costs_nothing(folder: Path) -> None:
    weights = _weights(12)
    async with (
        served(Counting, folder, "owner") as owner,
        served(Counting, folder, "liar") as liar,
        served(Counting, folder, "one") as one,
    ):
        ref = owner.put(weights)
        liar.share(ref.id, Held(pack_manifest(manifest_of(weights)), weights, ref.num_bytes))
        liar.damage, owner.pause_s = True, 0.02
        assert _equal(await _pull(ref, one, [liar.address, f"ipc://{folder}/nobody.sock", "tcp://10.1.2.3:4"]), weights)
        assert liar.sent_bytes > 0


async def test_an_owner_that_dies_in_the_middle_is_made_good_by_the_others(folder: Path, until: Any) -> None:
    weights = _weights(12)
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(served(Counting, folder, "owner"))
        owner.pause_s = 0.05
        has = await stack.enter_async_context(served(Counting, folder, "has"))
        has.pause_s = 0.02
        one = await stack.enter_async_context(served(Counting, folder, "one"))
        ref = owner.put(weights)
        has.share(ref.id, Held(pack_manifest(manifest_of(weights)), weights, ref.num_bytes))
        pulling = asyncio.create_task(_pull(ref, one, [has.address]))
        await until(lambda: has.sent_bytes >= 2 * CHUNK_BYTES)
        owner.free([ref.id])
        assert _equal(await pulling, weights)


async def test_nobody_has_it_or_it_is_not_what_was_promised(folder: Path) -> None:
    async with served(Counting, folder, "owner") as owner, served(Counting, folder, "one") as one:
        ref = owner.put(_weights(3))
        owner.damage = True
        with pytest.raises(BlobCorrupt, match="another digest"):
            await _pull(ref, one, [])
        owner.damage = False
        owner.mute = True
        with pytest.raises(BlobLost, match="silent"):
            await _pull(ref, one, [], timeout_s=0.3)
        owner.mute = False
        owner.free([ref.id])
        with pytest.raises(BlobLost):
            await _pull(ref, one, [], timeout_s=0.3)


async def test_pieces_are_passed_on_only_once_they_are_here(folder: Path, until: Any) -> None:
    weights = _weights(6)
    async with served(Counting, folder, "owner") as owner, served(Counting, folder, "one") as one:
        ref = owner.put(weights)
        owner.pause_s = 0.05
        pulling = asyncio.create_task(_pull(ref, one, []))
        await until(lambda: ref.id in one._shared)
        part = Part("large", 5 * CHUNK_BYTES, 5 * CHUNK_BYTES + 10)
        reply = one._chunk(Pull(request="r", blob=ref.id, offset=5 * CHUNK_BYTES, size=10))
        incoming = one._shared[ref.id]
        assert len(reply) == (1 if incoming.data(part) is None else 2)
        await pulling
        assert incoming.pieces() == b"", "all are here"
        assert len(one._chunk(Pull(request="r", blob=ref.id, offset=5 * CHUNK_BYTES, size=10))) == 2
