"""Tensors as they travel: dtype name, shape and bytes, with a manifest of digests for each bundle.

Owns the closed list of dtypes and the manifest's canonical bytes. Must not know torch or sockets; numpy is
imported where it is used only. Invariant: an `Array` whose size does not match its shape cannot exist, and a
size is checked before memory is taken for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgpack
from blake3 import blake3

from digend.wire.pulls import Manifest, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DTYPES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Item size in bytes of every dtype that may travel."""

MAX_DIMS = 16
MIN_PIECE_BYTES = 32 * 1024
MAX_PIECE_BYTES = 256 * 1024
"""What one digest covers: a tensor's pieces can be checked, and passed on, one by one. Small blobs have small ones, so
that there are enough of them to share among many.
"""
PIECES = 16
"""As many as a blob has at least, where its size allows."""
DIGEST_BYTES = 16
_SHARE_BYTES = 1024 * 1024
"""What is worth waking a thread for."""
_THREADS = min(4, os.cpu_count() or 1)


class BadTensor(ValueError):
    """A dtype outside the list, a shape that is none, or bytes that do not fit the shape."""


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor without torch. `data` is C-contiguous and little-endian: bytes, or a 1-d memoryview of bytes.

    They are not copied: whoever made them leaves them alone while the array is served. Raises BadTensor.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview | bytes

    def __post_init__(self) -> None:
        expected = num_bytes_of(self.dtype, self.shape)
        if isinstance(self.data, memoryview) and (
            self.data.ndim != 1 or self.data.itemsize != 1 or not self.data.contiguous
        ):
            raise BadTensor("tensor bytes must be one contiguous run: cast the memoryview to 'B'")
        if len(self.data) != expected:
            raise BadTensor(f"{self.dtype}{list(self.shape)} has {expected} bytes, not {len(self.data)}")

    @property
    def num_bytes(self) -> int:
        return len(self.data)


def num_bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor; allocates nothing. Raises BadTensor for an unknown dtype or an impossible shape."""
    if dtype not in DTYPES:
        raise BadTensor(f"dtype {dtype!r} does not travel; one of {', '.join(DTYPES)}")
    if len(shape) > MAX_DIMS or any(type(size) is not int or size < 0 for size in shape):
        raise BadTensor(f"shape {shape!r} is not a tuple of at most {MAX_DIMS} sizes")
    return math.prod(shape) * DTYPES[dtype]


def digest_bytes(data: memoryview | bytes | bytearray) -> str:
    """blake2b with 128 bits, hexadecimal."""
    return blake2b(data, digest_size=16).hexdigest()


def piece_digest(piece: memoryview | bytes | bytearray) -> bytes:
    """blake3 with 128 bits, of one piece: six times as fast as blake2b, which would be half of what a pull costs."""
    return blake3(piece).digest(DIGEST_BYTES)


def piece_digests(pieces: Sequence[memoryview]) -> list[bytes]:
    """The same of each. Of many bytes, threads take shares: it is the longest part of a pull."""
    num_bytes = sum(map(len, pieces))
    num_shares = min(_THREADS, num_bytes // _SHARE_BYTES, len(pieces))
    if num_shares < 2:
        return [piece_digest(piece) for piece in pieces]
    size = -(-len(pieces) // num_shares)
    shares = [pieces[begin : begin + size] for begin in range(0, len(pieces), size)]
    others = [_threads().submit(_digests, share) for share in shares[1:]]
    return [*_digests(shares[0]), *(digest for other in others for digest in other.result())]


def _digests(pieces: Sequence[memoryview]) -> list[bytes]:
    return [piece_digest(piece) for piece in pieces]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "digests")


def manifest_of(tensors: Mapping[str, Array]) -> Manifest:
    """What a bundle holds, in the mapping's order. Reads every byte once."""
    size = piece_bytes(sum(array.num_bytes for array in tensors.values()))
    pieces = {name: list(_pieces(array, size)) for name, array in tensors.items()}
    digests = iter(piece_digests([piece for each in pieces.values() for piece in each]))
    return Manifest(
        tensors=tuple(
            TensorSpec(
                name=name,
                dtype=array.dtype,
                shape=array.shape,
                num_bytes=array.num_bytes,
                digests=b"".join(islice(digests, len(pieces[name]))),
            )
            for name, array in tensors.items()
        )
    )


def pack_manifest(manifest: Manifest) -> bytes:
    """Canonical bytes of a manifest: what travels, and what its digest covers."""
    rows = [[spec.name, spec.dtype, list(spec.shape), spec.num_bytes, spec.digests] for spec in manifest.tensors]
    packed: bytes = msgpack.packb(rows)
    return packed


def unpack_manifest(data: bytes) -> Manifest:
    """The inverse of `pack_manifest`. Every size is checked against dtype and shape. Raises BadTensor."""
    try:
        specs = tuple(_spec(row) for row in msgpack.unpackb(data, max_ext_len=0))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadTensor(f"not a manifest: {error}") from error
    if len({spec.name for spec in specs}) != len(specs):
        raise BadTensor("a manifest names a tensor twice")
    size = piece_bytes(sum(spec.num_bytes for spec in specs))
    for spec in specs:
        if len(spec.digests) != DIGEST_BYTES * num_pieces(spec.num_bytes, size):
            raise BadTensor(
                f"tensor {spec.name!r}: {len(spec.digests)} bytes of digests do not fit {spec.num_bytes} bytes"
            )
    return Manifest(tensors=specs)


def digest_of(manifest: Manifest) -> str:
    """The blob's digest."""
    return digest_bytes(pack_manifest(manifest))


def from_numpy(values: NDArray[Any]) -> Array:
    """Strided or big-endian values are copied, others shared. Raises BadTensor for other dtypes."""
    if values.dtype.name not in DTYPES:
        raise BadTensor(f"numpy dtype {values.dtype.name!r} does not travel; one of {', '.join(DTYPES)}")
    little = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
    return Array(values.dtype.name, values.shape, little.reshape(-1).view("uint8").data)


def to_numpy(array: Array) -> NDArray[Any]:
    """Shares the array's memory (read-only where that is). Raises BadTensor for bfloat16."""
    import numpy as np

    if array.dtype == "bfloat16":
        raise BadTensor("numpy has no bfloat16: use `bits(array)` (uint16), or torch")
    return _view(array, np.dtype(array.dtype).newbyteorder("<"))


def bits(array: Array) -> NDArray[np.uint16]:
    """The bit patterns of a bfloat16 array, as uint16 of the same shape."""
    import numpy as np

    if array.dtype != "bfloat16":
        raise BadTensor(f"bits() is for bfloat16, not {array.dtype}")
    return _view(array, np.dtype("<u2"))


def _view(array: Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    import numpy as np

    if not array.data:
        return np.empty(array.shape, dtype)
    return np.frombuffer(array.data, dtype).reshape(array.shape)


def _spec(row: object) -> TensorSpec:
    match row:
        case [str(name), str(dtype), list() as sizes, int(num_bytes), bytes(digests)]:
            shape: tuple[int, ...] = tuple(sizes)
            spec = TensorSpec(name=name, dtype=dtype, shape=shape, num_bytes=num_bytes, digests=digests)
        case _:
            raise BadTensor("a manifest's row is [name, dtype, shape, bytes, digests]")
    if num_bytes_of(spec.dtype, spec.shape) != spec.num_bytes:
        raise BadTensor(f"tensor {name!r}: {num_bytes} bytes do not fit {dtype}{list(spec.shape)}")
    return spec


def piece_bytes(blob_bytes: int) -> int:
    """The size of the pieces of a blob whose tensors have so many bytes together."""
    return min(MAX_PIECE_BYTES, max(MIN_PIECE_BYTES, blob_bytes // PIECES))


def num_pieces(num_bytes: int, size: int) -> int:
    """Pieces of `size` of a tensor of so many bytes; the last may be short."""
    return -(-num_bytes // size)


def _pieces(array: Array, size: int) -> Iterator[memoryview]:
    data = memoryview(array.data)
    for offset in range(0, len(data), size):
        yield data[offset : offset + size]
