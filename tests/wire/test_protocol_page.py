"""docs/protocol.md names every message, and its numbers are those of the code."""

from dataclasses import is_dataclass
from pathlib import Path

import pytest

from digend.net import addresses, blob_limits, server, sockets
from digend.wire import codec, pages, protocol, pulls, replies, requests, tensors, workers

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text(encoding="utf-8")
TYPES = sorted(
    name
    for module in (protocol, workers, requests, replies, pages, pulls)
    for name, cls in vars(module).items()
    if is_dataclass(cls) and cls.__module__ == module.__name__
)


@pytest.mark.parametrize("name", TYPES)
def test_every_message_is_named(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("dtype", tensors.DTYPES)
def test_every_dtype_is_named(dtype: str) -> None:
    assert dtype in PAGE


@pytest.mark.parametrize(
    "said",
    [
        f"This is protocol {protocol.PROTOCOL}.",
        f"a control message | {protocol.MAX_MESSAGE_BYTES // 1024} KiB",
        f"frame to the driver | {sockets.MAX_FRAME_BYTES // 1024**2} MiB",
        f"{codec.MAX_ITEMS:,} items",
        f"{server.PEER_LIMIT_BYTES // 1024**2} MiB, or {sockets.QUEUE_MESSAGES:,} messages",
        f"a chunk | {blob_limits.MAX_CHUNK_BYTES // 1024**2} MiB",
        f"a manifest | {blob_limits.MAX_MANIFEST_BYTES // 1024**2} MiB",
        f"at least {blob_limits.MIN_COST_BYTES // 1024} KiB and at most {blob_limits.CHUNK_BYTES // 1024**2} MiB",
        f"not yet here are at most {blob_limits.CREDIT_BYTES // 1024**2} MiB per owner",
        f"one above {blob_limits.MANIFEST_BYTES // 1024} KiB comes in parts",
        f"at most {addresses.MAX_PATH_BYTES} bytes",
        f"every {sockets.HEARTBEAT_MS // 1000} s, {sockets.HEARTBEAT_TIMEOUT_MS // 1000} s of patience",
    ],
)
def test_numbers(said: str) -> None:
    assert said in " ".join(PAGE.split())
