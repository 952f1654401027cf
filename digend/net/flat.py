"""A blob as one run of bytes that one process sends to others: the manifest's size, the manifest, the tensors' bytes.

Must not know how the bytes travel (`share`) or what they mean. Invariant: a blob is received whole or not at all, with
the digests that its reference covers; sizes are checked before memory is taken.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from digend.net.blob_limits import MAX_MANIFEST_BYTES, MAX_PULL_BYTES, BlobCorrupt
from digend.net.blob_server import Held
from digend.net.fetch import unpacked
from digend.net.incoming import Incoming
from digend.wire.refs import BlobRef
from digend.wire.tensors import digest_bytes

Share = Callable[[memoryview], None]
"""Given writable bytes, of the same number in all processes: afterwards they are those of the one that sends."""

CHUNK_BYTES = 8 * 1024 * 1024
SIZE_BYTES = 8


def send(held: Held, share: Share) -> None:
    """Raises what `share` raises."""
    share(memoryview(bytearray(len(held.manifest).to_bytes(SIZE_BYTES, "little"))))
    share(memoryview(bytearray(held.manifest)))
    layout = held.layout(())
    for offset, size in _chunks(held.num_bytes):
        parts = [memoryview(held.tensors[name].data)[begin:end] for name, begin, end in layout.parts(offset, size)]
        share(memoryview(bytearray().join(parts)))


def receive(ref: BlobRef, share: Share, max_bytes: int = MAX_PULL_BYTES) -> Held:
    """Raises BlobCorrupt, and what `share` raises."""
    number = bytearray(SIZE_BYTES)
    share(memoryview(number))
    num_bytes = int.from_bytes(number, "little")
    if not 0 < num_bytes <= MAX_MANIFEST_BYTES:
        raise BlobCorrupt(f"blob {ref.id}: {num_bytes} bytes of manifest")
    manifest = bytearray(num_bytes)
    share(memoryview(manifest))
    if digest_bytes(manifest) != ref.digest:
        raise BlobCorrupt(f"blob {ref.id}: its manifest has another digest than the reference")
    packed = bytes(manifest)
    incoming = Incoming(ref, packed, unpacked(packed, ref), None, max_bytes)
    layout = incoming.layout(())
    for offset, size in _chunks(ref.num_bytes):
        chunk = memoryview(bytearray(size))  # a new one each time: tensors stay where they came
        share(chunk)
        sizes = (end - begin for _, begin, end in layout.parts(offset, size))
        begins = accumulate(sizes, initial=0)
        incoming.take(offset, size, [chunk[begin:end] for begin, end in pairwise(begins)])
    return Held(packed, incoming.tensors(), ref.num_bytes)


def _chunks(num_bytes: int) -> Iterator[tuple[int, int]]:
    """(offset, size)."""
    for offset in range(0, num_bytes, CHUNK_BYTES):
        yield offset, min(CHUNK_BYTES, num_bytes - offset)
