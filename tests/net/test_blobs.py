"""Blobs: what was put is what is pulled, or BlobLost, or BlobCorrupt. Never silence, never other bytes."""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from digend.net.addresses import BadAddress
from digend.net.blob_limits import CHUNK_BYTES, MAX_CHUNK_BYTES
from digend.net.blobs import BlobClient, BlobCorrupt, BlobLost, BlobServer
from digend.net.claims import AddressInUse
from digend.wire.codec import decode, encode
from digend.wire.pulls import GetManifest, GetPieces, Pull, PullRefused
from digend.wire.tensors import Array, from_numpy, to_numpy
from digend.wire.verbs import FROM_OWNER
from tests.net.conftest import random_array, served


def _bytes(tensors: dict[str, Array]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype, array.shape, bytes(array.data)) for name, array in tensors.items()}


ODD = {
    "bf16": Array("bfloat16", (2, 2), b"\x80\x3f\x00\x40\xc0\x7f\x80\xff"),
    "scalar": from_numpy(np.array(2.5)),
    "empty": Array("float32", (0, 7), b""),
    "strided": from_numpy(np.arange(30, dtype=np.int64).reshape(5, 6)[::2, ::-1]),
    "flags": from_numpy(np.array([True, False])),
    "p/0/pixels": random_array(3 * 16 * 16),
    "large": random_array(2 * CHUNK_BYTES + 17),
}


@pytest.mark.parametrize("data", ["ipc", "tcp://127.0.0.1", "tcp://127.0.0.1:*"])
async def test_what_was_put_is_what_is_pulled(folder: Path, consumer: BlobClient, data: str) -> None:
    async with served(BlobServer, folder, data=data) as owner:
        ref = owner.put(ODD)
        assert ref.owner == owner.address
        assert ref.num_bytes == sum(array.num_bytes for array in ODD.values()) == owner.held_bytes
        pulled = await consumer.pull(ref)
        assert list(pulled) == list(ODD)
        assert _bytes(pulled) == _bytes(ODD)


async def test_a_subset_in_manifest_order(owner: BlobServer, consumer: BlobClient) -> None:
    pulled = await consumer.pull(owner.put(ODD), ["scalar", "bf16"])
    assert list(pulled) == ["bf16", "scalar"]
    assert to_numpy(pulled["scalar"]) == 2.5
    assert await consumer.pull(owner.put(ODD), []) == {}
    assert await consumer.pull(owner.put({})) == {}


async def test_a_name_that_is_not_there_gets_the_nearest(owner: BlobServer, consumer: BlobClient) -> None:
    with pytest.raises(BlobCorrupt, match="'scalr', did you mean 'scalar'"):
        await consumer.pull(owner.put(ODD), ["scalr"])


async def test_pulled_tensors_can_be_written(owner: BlobServer, consumer: BlobClient) -> None:
    pulled = await consumer.pull(owner.put(ODD))
    to_numpy(pulled["large"])[0] += 1


async def test_many_pulls_at_once_and_the_same_one_twice(owner: BlobServer, consumer: BlobClient) -> None:
    blobs = [{"t": random_array(CHUNK_BYTES * (seed % 3) + seed, seed)} for seed in range(8)]
    refs = [owner.put(blob) for blob in blobs]
    pulled = await asyncio.gather(*(consumer.pull(ref) for ref in refs + refs))
    for got, want in zip(pulled, blobs + blobs, strict=True):
        assert _bytes(got) == _bytes(want)


@pytest.mark.parametrize("size", [0, 7])
async def test_a_manifest_of_several_chunks(owner: BlobServer, consumer: BlobClient, size: int) -> None:
    tensors = {f"{number}/" + "n" * 3000: random_array(size, number) for number in range(1000)}
    ref = owner.put(tensors)
    assert _bytes(await consumer.pull(ref)) == _bytes(tensors)
    some = list(tensors)[100:900:3]
    assert list(await consumer.pull(ref, some)) == some, "more names than go into a request"


class Asked(BlobServer):
    """Knows what it was asked, and says `frames` where they are given."""

    asked: list[object]
    frames: list[Any] | None = None

    def _answer(self, asked: GetManifest | Pull | GetPieces) -> list[Any]:
        self.asked = [*getattr(self, "asked", []), asked]
        answer = super()._answer(asked)
        return answer if self.frames is None else [answer[0], *self.frames]


async def test_a_small_blob_takes_one_round_trip(folder: Path, consumer: BlobClient) -> None:
    async with served(Asked, folder) as owner:
        small = {f"{number}": random_array(MAX_CHUNK_BYTES // 8, number) for number in range(8)}
        pulled = await consumer.pull(owner.put(small))
        assert _bytes(pulled) == _bytes(small)
        assert len(owner.asked) == 1
        some = await consumer.pull(owner.put(small), {"7", "0", "3"})
        assert _bytes(some) == {name: _bytes(small)[name] for name in ("0", "3", "7")}
        assert len(owner.asked) == 2


LARGE = {
    f"{number}": random_array(size, number) for number, size in enumerate((3, 3_000_000, 0, 1_000_000, 70_000, 999_999))
}


@pytest.mark.parametrize("names", [None, ["5", "1"], ["4", "4", "0", "2"], ["1", "3"], ["3", "1"], ["2"]])
async def test_first_bytes_are_asked_for_before_the_manifest_is_here(
    folder: Path, consumer: BlobClient, names: list[str] | None
) -> None:
    """In the order named, though tensors are cut wherever a chunk ends."""
    async with served(Asked, folder) as owner:
        ref = owner.put(LARGE)
        assert ref.num_bytes > MAX_CHUNK_BYTES
        pulled = await consumer.pull(ref, names)
        assert _bytes(pulled) == {name: each for name, each in _bytes(LARGE).items() if names is None or name in names}
        assert list(pulled) == sorted(pulled)
        first, second = owner.asked[:2]
        assert isinstance(first, GetManifest)
        assert isinstance(second, Pull)
        assert second.offset == first.ahead > 0


@pytest.mark.parametrize("frames", [[], [b""], [b"1234", b"5678"]])
async def test_an_owner_that_sends_something_else_is_corrupt(
    folder: Path, consumer: BlobClient, frames: list[bytes]
) -> None:
    async with served(Asked, folder) as owner:
        ref = owner.put({"t": random_array(10)})
        owner.frames = frames
        with pytest.raises(BlobCorrupt):
            await consumer.pull(ref)
        manifest = bytes(owner._manifest(GetManifest(request="r", blob=ref.id, offset=0, size=1000))[1])
        for wrong in ([manifest], [manifest, b"123456789"], [manifest, b"0123456789"], [manifest, b"01234", b"56789"]):
            owner.frames = wrong
            with pytest.raises(BlobCorrupt):
                await consumer.pull(ref)


async def test_64_mib(owner: BlobServer, consumer: BlobClient, record_property: Callable[[str, object], None]) -> None:
    array = random_array(64 * 1024 * 1024)
    ref = owner.put({"weights": array})
    start = time.perf_counter()
    pulled = await consumer.pull(ref)
    record_property("seconds_for_64_mib", time.perf_counter() - start)
    assert pulled["weights"].data == array.data


async def test_put_from_other_threads(owner: BlobServer, consumer: BlobClient) -> None:
    refs = await asyncio.gather(*(asyncio.to_thread(owner.put, {"t": random_array(100, seed)}) for seed in range(20)))
    assert len({ref.id for ref in refs}) == 20
    for seed, ref in enumerate(refs):
        assert bytes((await consumer.pull(ref))["t"].data) == bytes(random_array(100, seed).data)


async def test_freed_blobs_are_refused_and_their_memory_is_let_go(owner: BlobServer, consumer: BlobClient) -> None:
    keep, drop = owner.put({"t": random_array(10)}), owner.put({"t": random_array(20)})
    owner.free([drop.id, "unknown"])
    assert owner.held_bytes == 10
    with pytest.raises(BlobLost, match="does not hold it"):
        await consumer.pull(drop)
    assert (await consumer.pull(keep))["t"].shape == (10,)


async def test_the_garbage_collector_gets_a_freed_blob(owner: BlobServer, consumer: BlobClient, until: Any) -> None:
    class Watched(np.ndarray[Any, Any]):
        gone = False

        def __del__(self) -> None:
            Watched.gone = True

    values = np.zeros(CHUNK_BYTES, np.uint8).view(Watched)
    ref = owner.put({"t": Array("uint8", values.shape, values.data)})
    del values
    await consumer.pull(ref)
    assert not Watched.gone
    owner.free([ref.id])
    await until(lambda: bool(gc.collect() is not None and Watched.gone))


async def test_changed_bytes_are_corrupt_and_name_the_tensor(owner: BlobServer, consumer: BlobClient) -> None:
    values = np.zeros(CHUNK_BYTES + 5, np.uint8)
    ref = owner.put({"good": random_array(10), "bad": from_numpy(values)})
    values[CHUNK_BYTES + 1] = 1
    with pytest.raises(BlobCorrupt, match="'bad' has another digest"):
        await consumer.pull(ref)
    assert "good" in await consumer.pull(ref, ["good"])


async def test_a_reference_that_does_not_fit_is_corrupt(owner: BlobServer, consumer: BlobClient) -> None:
    ref = owner.put(ODD)
    with pytest.raises(BlobCorrupt, match="digest"):
        await consumer.pull(replace(ref, digest="0" * 32))
    with pytest.raises(BlobCorrupt, match="add up"):
        await consumer.pull(replace(ref, num_bytes=ref.num_bytes + 1))


async def test_the_limit_is_checked_before_memory_is_taken(owner: BlobServer) -> None:
    client = BlobClient(max_bytes=1000)
    with pytest.raises(BlobCorrupt, match="limit of 1000"):
        await client.pull(owner.put(ODD))
    client.close()


async def test_a_cancelled_pull_gives_its_credit_back(owner: BlobServer, consumer: BlobClient) -> None:
    ref = owner.put({"t": random_array(40 * CHUNK_BYTES)})
    for _ in range(10):
        pull = asyncio.create_task(consumer.pull(ref))
        for _ in range(20):
            await asyncio.sleep(0)
        pull.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pull
    assert (await consumer.pull(ref))["t"].num_bytes == ref.num_bytes


async def test_requests_that_make_no_sense_are_refused(owner: BlobServer, consumer: BlobClient, until: Any) -> None:
    ref = owner.put({"t": random_array(10)})
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(owner.address)
    good = Pull(request="7", blob=ref.id, names=("t",), offset=0, size=10)
    manifest = GetManifest(request="8", blob=ref.id, offset=0, size=10)
    bad = [
        replace(good, offset=-1),
        replace(good, size=-1),
        replace(good, size=MAX_CHUNK_BYTES + 1),
        replace(good, names=("u",)),
        replace(good, blob="x"),
        replace(manifest, offset=-1),
        replace(manifest, size=MAX_CHUNK_BYTES + 1),
        replace(manifest, ahead=MAX_CHUNK_BYTES + 1),
        replace(manifest, ahead=-1),
        replace(manifest, blob="x"),
    ]
    for data in [b"garbage", *(encode(pull) for pull in bad)]:
        dealer.send(data)
    dealer.send_multipart([b"", encode(good)])
    for _ in range(len(bad) + 2):
        await until(lambda: bool(dealer.poll(0)))
        assert isinstance(decode(dealer.recv(), FROM_OWNER), PullRefused)
    assert await consumer.pull(ref)
    dealer.close(0)
    context.term()


async def test_a_slice_past_the_end_is_short(owner: BlobServer) -> None:
    ref = owner.put({"t": random_array(10)})
    header, chunk = owner._chunk(Pull(request="r", blob=ref.id, offset=8, size=10))
    assert decode(header, FROM_OWNER).total == 10
    assert len(chunk) == 2
    assert len(owner._chunk(Pull(request="r", blob=ref.id, offset=11, size=10))) == 1


async def test_bad_data_addresses_and_names_in_use(folder: Path, owner: BlobServer) -> None:
    with pytest.raises(BadAddress, match="without keys"):
        BlobServer.bind("tcp://0.0.0.0", "i", folder)
    with pytest.raises(BadAddress, match="write 'ipc'"):
        BlobServer.bind("ipc://x.sock", "i", folder)
    with pytest.raises(BadAddress, match="bytes"):
        BlobServer.bind("ipc", "i", folder / ("x" * 100))
    with pytest.raises(AddressInUse, match="life-1"):
        BlobServer.bind("ipc", "life-1", folder)
