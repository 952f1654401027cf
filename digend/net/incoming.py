"""A blob on its way: memory for its tensors, and which of their pieces are here and have the right digest.

Owns the memory. Must not know sockets. Invariant: a piece counts as held only after its digest was checked, and what is
held never changes again, so that it may be passed on before the rest is here.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from digend.net.addresses import nearest
from digend.net.blob_limits import MIN_COST_BYTES, BlobCorrupt
from digend.net.layout import Layout, Part
from digend.wire.pulls import Manifest, TensorSpec
from digend.wire.refs import BlobRef
from digend.wire.tensors import DIGEST_BYTES, Array, num_pieces, piece_bytes, piece_digests


@dataclass(frozen=True, slots=True)
class Piece:
    """`size` bytes that lie at `offset` of all tensors laid end to end; `number` counts all pieces of the blob, in
    manifest order.
    """

    number: int
    offset: int
    size: int


class Incoming:
    """Of the tensors `names` of a blob (all: None). Raises BlobCorrupt before memory is taken, where sizes do not fit.

    `packed` is the manifest as it came. One thread only.
    """

    def __init__(
        self, ref: BlobRef, packed: bytes, manifest: Manifest, names: Collection[str] | None, max_bytes: int
    ) -> None:
        self._ref = ref
        self._packed = packed
        self._specs = _chosen(ref, manifest, names, max_bytes)
        self._piece_bytes = piece_bytes(ref.num_bytes)
        self._whole = Layout({spec.name: spec.num_bytes for spec in manifest.tensors})
        self._named = self._whole if names is None else Layout({name: self._specs[name].num_bytes for name in names})
        self._starts = dict(self._whole.starts())
        self._first: dict[str, int] = {}
        number = 0
        for spec in manifest.tensors:
            self._first[spec.name] = number
            number += num_pieces(spec.num_bytes, self._piece_bytes)
        self._buffers: dict[str, memoryview] = {}
        self._held = bytearray(number)
        self._come: dict[int, int] = {}
        """Bytes that are here of pieces that are not."""

    def wanted(self) -> Iterator[Piece]:
        """Pieces to pull, in manifest order."""
        for spec in self._specs.values():
            for index in range(num_pieces(spec.num_bytes, self._piece_bytes)):
                offset = index * self._piece_bytes
                yield Piece(
                    number=self._first[spec.name] + index,
                    offset=self._starts[spec.name] + offset,
                    size=min(self._piece_bytes, spec.num_bytes - offset),
                )

    def runs(self, begin: int, num_bytes: int) -> Iterator[tuple[int, int]]:
        """(offset, size) in the whole blob of the tensors to pull, but for their first `begin` bytes in the order in
        which they were named. None has more than `num_bytes`.
        """
        offset = size = 0
        for name, start, end in self._named.parts(begin, self._named.num_bytes):
            at = self._starts[name] + start
            if at != offset + size:
                yield from _cut(offset, size, num_bytes)
                offset, size = at, 0
            size += end - start
        yield from _cut(offset, size, num_bytes)

    def take(self, offset: int, size: int, chunk: Sequence[memoryview], *, named: bool = False) -> None:
        """Bytes [offset, offset + size) of the whole blob, or of what is pulled in the order named: a quarter of a
        millisecond of the event loop for 1 MiB. Raises BlobCorrupt where they are too few or many, or not what the
        manifest says; a piece that is wrong may come again.
        """
        parts = list((self._named if named else self._whole).parts(offset, size))
        if [end - begin for _, begin, end in parts] != [len(data) for data in chunk]:
            raise BlobCorrupt(f"blob {self._ref.id}: a chunk has {sum(map(len, chunk))} bytes, or not those asked for")
        whole: list[tuple[str, int]] = []
        for part, data in zip(parts, chunk, strict=True):
            self._put(part, data)
            whole += self._came(part)
        self._check(whole)

    def _put(self, part: Part, data: memoryview) -> None:
        """A tensor that comes at once stays where it came; small ones would keep what lies around them."""
        size = self._specs[part.name].num_bytes
        if len(data) == size and size >= MIN_COST_BYTES:
            self._buffers[part.name] = data
            return
        if part.name not in self._buffers:
            self._buffers[part.name] = _memory(size)
        self._buffers[part.name][part.begin : part.end] = data

    def _came(self, part: Part) -> Iterator[tuple[str, int]]:
        """Pieces of which nothing lacks any more."""
        name, begin, end = part
        for index in range(begin // self._piece_bytes, num_pieces(end, self._piece_bytes)):
            first, last = self._bounds(name, index)
            number = self._first[name] + index
            come = self._come.pop(number, 0) + min(end, last) - max(begin, first)
            if come == last - first:
                yield name, index
            else:
                self._come[number] = come

    def _check(self, pieces: Sequence[tuple[str, int]]) -> None:
        found = piece_digests([self._buffers[name][slice(*self._bounds(name, index))] for name, index in pieces])
        for (name, index), digest in zip(pieces, found, strict=True):
            if digest != self._specs[name].digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]:
                raise BlobCorrupt(f"blob {self._ref.id}: tensor {name!r} has another digest than its manifest")
            self._held[self._first[name] + index] = 1

    def _bounds(self, name: str, index: int) -> tuple[int, int]:
        """Where in its tensor a piece begins and ends."""
        begin = index * self._piece_bytes
        return begin, min(begin + self._piece_bytes, self._specs[name].num_bytes)

    def tensors(self) -> dict[str, Array]:
        """Shares the memory. Raises BlobCorrupt where a wanted piece is not held."""
        if not all(self._held[piece.number] for piece in self.wanted()):
            raise BlobCorrupt(f"blob {self._ref.id}: not all of its bytes came")
        return {name: Array(spec.dtype, spec.shape, self._buffers.get(name, b"")) for name, spec in self._specs.items()}

    # ------------------------------------------------------------------------------------- for whoever passes it on

    @property
    def manifest(self) -> bytes:
        """Packed."""
        return self._packed

    def layout(self, names: Sequence[str]) -> Layout:
        """Of the whole blob where none is named. Raises KeyError."""
        return Layout({name: self._specs[name].num_bytes for name in names}) if names else self._whole

    def data(self, part: Part) -> memoryview | None:
        """Read-only; None where some of these bytes are not here, or not checked."""
        first = self._first[part.name]
        begin, end = part.begin // self._piece_bytes, num_pieces(part.end, self._piece_bytes)
        if part.name not in self._buffers or not all(self._held[first + begin : first + end]):
            return None
        return self._buffers[part.name][part.begin : part.end].toreadonly()

    def pieces(self) -> bytes:
        """`digend.wire.pulls.Pieces.held`."""
        return b"" if all(self._held) else packed_bits(self._held)


def _cut(offset: int, size: int, most: int) -> Iterator[tuple[int, int]]:
    for begin in range(offset, offset + size, most):
        yield begin, min(most, offset + size - begin)


def packed_bits(flags: bytes | bytearray) -> bytes:
    """One bit for each byte that is 0 or 1, lowest first."""
    import numpy as np

    return np.packbits(np.frombuffer(flags, np.uint8), bitorder="little").tobytes()


def unpacked_bits(packed: bytes) -> bytes:
    """The bytes again, up to seven zeros more."""
    import numpy as np

    return np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").tobytes()


def _memory(num_bytes: int) -> memoryview:
    """Not cleared: clearing a large tensor takes a third of the time of pulling it."""
    import numpy as np

    return np.empty(num_bytes, np.uint8).data if num_bytes else memoryview(bytearray())


def _chosen(ref: BlobRef, manifest: Manifest, names: Collection[str] | None, max_bytes: int) -> dict[str, TensorSpec]:
    if sum(spec.num_bytes for spec in manifest.tensors) != ref.num_bytes:
        raise BlobCorrupt(f"blob {ref.id}: its manifest does not add up to {ref.num_bytes} bytes")
    known = {spec.name: spec for spec in manifest.tensors}
    wanted = known.keys() if names is None else frozenset(names)
    for name in sorted(wanted - known.keys()):
        raise BlobCorrupt(f"blob {ref.id} has no tensor {name!r}{nearest(name, tuple(known))}")
    specs = {name: spec for name, spec in known.items() if name in wanted}
    num_bytes = sum(spec.num_bytes for spec in specs.values())
    if num_bytes > max_bytes:
        raise BlobCorrupt(f"blob {ref.id}: {num_bytes} bytes are over the limit of {max_bytes}")
    return specs
