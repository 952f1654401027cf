"""A blob as one run of bytes: what is received is what was sent, or nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from digend.net import flat
from digend.net.blobs import BlobCorrupt, BlobServer, Held
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array


class Wire:
    """What is sent, and read again in runs of the same lengths. `flip`: the number of a run with a wrong bit."""

    def __init__(self, flip: int = -1) -> None:
        self.runs: list[bytes] = []
        self._flip = flip

    def send(self, data: memoryview) -> None:
        self.runs.append(bytes(data))

    def receive(self, data: memoryview) -> None:
        self._flip -= 1
        run = bytearray(self.runs.pop(0))
        run[-1] ^= self._flip == -1
        data[:] = run


def blob(folder: Path, **sizes: int) -> tuple[BlobRef, Held]:
    rng = np.random.default_rng(0)
    server = BlobServer.bind("ipc", "i", folder)
    ref = server.put({name: Array("uint8", (size,), rng.bytes(size)) for name, size in sizes.items()})
    held = server.held(ref.id)
    server.close()
    assert held is not None
    return ref, held


@pytest.mark.parametrize(
    "sizes", [{"a": 1}, {"a": 100, "b": 0, "c": 3000}, {"a": 700, "b": 1024, "c": 1023, "d": 1}, {"a": 5000}, {}]
)
def test_what_comes_is_what_was_sent(sizes: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "CHUNK_BYTES", 1024)
    ref, held = blob(tmp_path, **sizes)
    wire = Wire()
    flat.send(held, wire.send)
    assert [len(run) for run in wire.runs[2:-1]] == [1024] * (max(1, -(-sum(sizes.values()) // 1024)) - 1)
    got = flat.receive(ref, wire.receive)
    assert not wire.runs
    assert got.manifest == held.manifest
    assert {name: bytes(each.data) for name, each in got.tensors.items()} == {
        name: bytes(each.data) for name, each in held.tensors.items()
    }


@pytest.mark.parametrize(("run", "why"), [(0, "bytes of manifest"), (1, "another digest"), (3, "another digest")])
def test_a_bit_that_is_wrong_is_seen(run: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "CHUNK_BYTES", 1024)
    ref, held = blob(tmp_path, a=3000)
    wire = Wire(flip=run)
    flat.send(held, wire.send)
    with pytest.raises(BlobCorrupt, match=why):
        flat.receive(ref, wire.receive)


def test_no_memory_is_taken_for_a_blob_that_is_too_large(tmp_path: Path) -> None:
    ref, held = blob(tmp_path, a=3000)
    wire = Wire()
    flat.send(held, wire.send)
    with pytest.raises(BlobCorrupt, match="over the limit of 2000"):
        flat.receive(ref, wire.receive, max_bytes=2000)


def test_another_blob_than_the_reference_says_is_refused(tmp_path: Path) -> None:
    ref, held = blob(tmp_path, a=3000)
    wire = Wire()
    flat.send(held, wire.send)
    with pytest.raises(BlobCorrupt, match="another digest than the reference"):
        flat.receive(replace(ref, digest="0" * 32), wire.receive)
