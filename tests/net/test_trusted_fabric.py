"""Tensors in the clear on a network that is spelled out: who gets them, from where, and that they are what was made."""

import asyncio
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from digend.config.fabric import Network, is_in, network_of
from digend.net.addresses import BadAddress
from digend.net.blobs import BlobClient, BlobLost, BlobServer
from digend.net.security import Security
from digend.wire.codec import encode
from digend.wire.pulls import Pull
from digend.wire.tensors import from_numpy, to_numpy
from tests.net.keyed import Keys

PIXELS = np.arange(3_000_000, dtype=np.float32)


def on(fabric: str, security: Security) -> Security:
    """The same keys, and a trusted network."""
    security.fabric = network_of(fabric)
    return security


async def test_on_the_fabric_a_blob_is_pulled_in_the_clear(tmp_path: Path) -> None:
    keys = Keys()
    owner = BlobServer.bind("tcp://127.0.0.1", "i1", tmp_path, security=on("127.0.0.0/30", keys.of("box-b")))
    serving = asyncio.create_task(owner.serve())
    ref = owner.put({"pixels": from_numpy(PIXELS)})
    assert "#" not in ref.owner
    client = BlobClient(security=on("127.0.0.0/30", keys.of("box-a")))
    assert np.array_equal(to_numpy((await client.pull(ref))["pixels"]), PIXELS)
    client.close()
    owner.close()
    await serving


async def test_who_comes_from_elsewhere_gets_nothing_and_is_told_of(tmp_path: Path) -> None:
    refused: list[tuple[str, str]] = []

    def told(key: str, address: str) -> None:
        refused.append((key, address))

    security = on("127.0.0.0/30", Keys().of("box-b"))
    owner = BlobServer.bind("tcp://127.0.0.1", "i1", tmp_path, security=security, refused=told)
    serving = asyncio.create_task(owner.serve())
    ref = owner.put({"pixels": from_numpy(PIXELS[:2])})
    port = ref.owner.rpartition(":")[2]
    for source, answered in (("127.0.0.2", True), ("127.0.0.9", False)):
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(f"tcp://{source}:0;127.0.0.1:{port}")
            dealer.send(encode(Pull(request="1", blob=ref.id, offset=0, size=1)))
            assert bool(await _within(dealer, 1.0)) is answered
    assert refused == [("", "127.0.0.9")]
    owner.close()
    await serving


async def _within(dealer: Any, seconds: float) -> int:
    return await asyncio.to_thread(dealer.poll, int(1000 * seconds))


def test_an_owner_off_its_fabric_does_not_start(tmp_path: Path) -> None:
    async def bind() -> None:
        BlobServer.bind("tcp://127.0.0.1", "i1", tmp_path, security=on("10.91.0.0/24", Keys().of("box-b")))

    with pytest.raises(BadAddress, match=r"is not in keys.trusted_fabric \(10.91.0.0/24\)"):
        asyncio.run(bind())


@pytest.mark.parametrize("fabric", ["10.1.2.0/24", "10.1.3.0/24"])
async def test_a_consumer_goes_to_its_own_fabric_only(fabric: str, tmp_path: Path) -> None:
    owner = BlobServer.bind("tcp://127.0.0.1", "i1", tmp_path)
    ref = owner.put({"pixels": from_numpy(PIXELS[:2])})
    far = type(ref)(**{name: getattr(ref, name) for name in type(ref).__dataclass_fields__} | {"owner": FAR})
    client = BlobClient(security=on(fabric, Keys().of("box-a")))
    with pytest.raises(BlobLost) as caught:  # nobody is there, or what is there is no owner of blobs
        await client.pull(far, timeout_s=0.2)
    assert ("nothing goes in the clear" in str(caught.value)) is (fabric == "10.1.3.0/24")
    client.close()
    owner.close()


FAR = "tcp://10.1.2.3:4567"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.91.0.1/24", "expected a network such as 10.91.0.0/24; did you mean 10.91.0.0/24?"),
        ("eth0", "expected a network such as"),
        ("0.0.0.0/0", "this one is every address"),
        ("::/0", "this one is every address"),
    ],
)
def test_a_network_is_spelled_out(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        network_of(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("host", "network", "expected"),
    [
        ("10.91.0.7", "10.91.0.0/24", True),
        ("10.91.1.7", "10.91.0.0/24", False),
        ("[fd00::2]", "fd00::/64", True),
        ("fd00::2", "10.91.0.0/24", False),
        ("box-b", "10.91.0.0/24", False),
        ("*", "10.91.0.0/24", False),
    ],
)
def test_what_is_on_it(host: str, network: str, expected: bool) -> None:
    found: Network = ip_network(network)
    assert is_in(host, found) is expected
    assert not is_in(host, None)
