"""Keys and blobs: who is given tensors, and what those are told who get none."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from digend.net.blobs import BlobClient, BlobLost, BlobServer
from digend.wire.tensors import from_numpy, to_numpy
from tests.net.keyed import LOCAL, Keys, Told

PIXELS = np.arange(3_000_000, dtype=np.float32).reshape(1000, 3000)


@pytest.fixture
async def owner(keys: Keys, told: Told, tmp_path: Any) -> AsyncIterator[BlobServer]:
    server = BlobServer.bind(LOCAL, "i1", tmp_path, security=keys.of("box-b"), refused=told)
    task = asyncio.create_task(server.serve())
    yield server
    server.close()
    await task


async def test_a_blob_of_several_chunks_is_pulled_with_keys(keys: Keys, owner: BlobServer) -> None:
    ref = owner.put({"pixels": from_numpy(PIXELS)})
    assert ref.owner.endswith(f"#{keys.pairs['box-b'].public}")
    client = BlobClient(security=keys.of("box-a"))
    pulled = await client.pull(ref)
    assert np.array_equal(to_numpy(pulled["pixels"]), PIXELS)
    client.close()


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ("ada", "refused the key"),
        ("stranger", "refused the key"),
        ("nobody", "wants keys, and there are none here"),
        ("forgetful", "has a key that is not listed here as a worker's"),
    ],
)
async def test_who_gets_no_blob_and_is_told_at_once(
    keys: Keys, owner: BlobServer, told: Told, who: str, why: str
) -> None:
    ref = owner.put({"pixels": from_numpy(PIXELS[:2])})
    security = {
        "ada": keys.of("ada"),
        "stranger": keys.stranger(),
        "nobody": None,
        "forgetful": keys.of("box-a", "box-b"),
    }[who]
    client = BlobClient(security=security)
    async with asyncio.timeout(5):
        with pytest.raises(BlobLost, match=why):
            await client.pull(ref, timeout_s=60.0)
    client.close()
    assert bool(told.refused) == (why == "refused the key")


async def test_an_owner_without_the_key_of_its_reference_gives_nothing(keys: Keys, owner: BlobServer) -> None:
    ref = owner.put({"pixels": from_numpy(PIXELS[:2])})
    address, _, _ = ref.owner.partition("#")
    wrong = type(ref)(**{**_fields(ref), "owner": f"{address}#{keys.pairs['box-a'].public}"})
    client = BlobClient(security=keys.of("box-a"))
    with pytest.raises(BlobLost, match="is the key of its role in"):
        await client.pull(wrong, timeout_s=0.5)
    client.close()


async def test_blobs_of_other_machines_come_with_a_key_or_not_at_all(keys: Keys, owner: BlobServer) -> None:
    ref = owner.put({"pixels": from_numpy(PIXELS[:2])})
    bare = type(ref)(**{**_fields(ref), "owner": "tcp://10.1.2.3:4567"})
    client = BlobClient(security=keys.of("box-a"))
    with pytest.raises(BlobLost, match="its reference names no key: nothing goes in the clear"):
        await client.pull(bare, timeout_s=0.5)
    client.close()


def _fields(ref: Any) -> dict[str, Any]:
    return {name: getattr(ref, name) for name in type(ref).__dataclass_fields__}
