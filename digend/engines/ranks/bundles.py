"""Blobs as one run of bytes, for the way between ranks: how many bytes of listing (msgpack), the listing, the tensors.

Must not know how they travel. What is unpacked shares the memory of the bytes.
"""

from collections.abc import Mapping

import msgpack

from digend.wire.tensors import Array

Blobs = Mapping[str, Mapping[str, Array]]
"""Tensors by the digest of their blob, or another name, then by name."""

_LENGTH_BYTES = 8


def pack(blobs: Blobs) -> bytes:
    listing: bytes = msgpack.packb(
        [
            [key, [[name, each.dtype, list(each.shape), each.num_bytes] for name, each in blob.items()]]
            for key, blob in blobs.items()
        ]
    )
    data = (bytes(each.data) for blob in blobs.values() for each in blob.values())
    return b"".join((len(listing).to_bytes(_LENGTH_BYTES, "little"), listing, *data))


def unpack(packed: bytes) -> dict[str, dict[str, Array]]:
    at = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")
    content, blobs = memoryview(packed), dict[str, dict[str, Array]]()
    for key, entries in msgpack.unpackb(packed[_LENGTH_BYTES:at]):
        blob = blobs.setdefault(key, {})
        for name, dtype, shape, size in entries:
            blob[name] = Array(dtype, tuple(shape), content[at : at + size])
            at += size
    return blobs
