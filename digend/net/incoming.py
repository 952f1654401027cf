"""A blob on its way: memory for its tensors, and which of their pieces are here and have the right digest.

Owns the memory. Must not know sockets. Invariant: a piece counts as held only after its digest was checked, and what is
held never changes again, so that it may be passed on before the rest is here.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from digend.net.addresses import nearest
from digend.net.blob_limits import BlobCorrupt
from digend.wire.pulls import Manifest, TensorSpec
from digend.wire.refs import BlobRef
from digend.wire.tensors import DIGEST_BYTES, Array, num_pieces, piece_bytes, piece_digest


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [offset, offset + size) of a tensor; `number` counts all pieces of the blob, in manifest order."""

    number: int
    name: str
    offset: int
    size: int
    digest: bytes


class Incoming:
    """Of the tensors `names` of a blob (all: None). Raises BlobCorrupt before memory is taken, where sizes do not fit.

    `packed` is the manifest as it came. `fill` may be called from any thread, for different pieces at a time.
    """

    def __init__(
        self, ref: BlobRef, packed: bytes, manifest: Manifest, names: Collection[str] | None, max_bytes: int
    ) -> None:
        self._ref = ref
        self._packed = packed
        self._specs = _chosen(ref, manifest, names, max_bytes)
        self._piece_bytes = piece_bytes(ref.num_bytes)
        self._first: dict[str, int] = {}
        number = 0
        for spec in manifest.tensors:
            self._first[spec.name] = number
            number += num_pieces(spec.num_bytes, self._piece_bytes)
        self._buffers = {spec.name: _memory(spec.num_bytes) for spec in self._specs}
        self._held = bytearray(number)

    def wanted(self) -> Iterator[Piece]:
        """Pieces to pull, in manifest order."""
        for spec in self._specs:
            for index in range(num_pieces(spec.num_bytes, self._piece_bytes)):
                offset = index * self._piece_bytes
                yield Piece(
                    number=self._first[spec.name] + index,
                    name=spec.name,
                    offset=offset,
                    size=min(self._piece_bytes, spec.num_bytes - offset),
                    digest=spec.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES],
                )

    def runs(self, num_bytes: int) -> Iterator[tuple[Piece, ...]]:
        """The same, as many at a time as lie one after another in a tensor and take no more than so many bytes."""
        run: list[Piece] = []
        for piece in self.wanted():
            if run and (piece.name != run[0].name or piece.offset + piece.size > run[0].offset + num_bytes):
                yield tuple(run)
                run = []
            run.append(piece)
        if run:
            yield tuple(run)

    def target(self, piece: Piece) -> memoryview:
        """Where its bytes go."""
        return self._buffers[piece.name][piece.offset : piece.offset + piece.size]

    def check(self, piece: Piece) -> None:
        """What lies at `target` is complete. Raises BlobCorrupt where it is not what the manifest says."""
        if piece_digest(self.target(piece)) != piece.digest:
            raise BlobCorrupt(f"blob {self._ref.id}: tensor {piece.name!r} has another digest than its manifest")
        self._held[piece.number] = 1

    def holds(self, piece: Piece) -> bool:
        return bool(self._held[piece.number])

    def tensors(self) -> dict[str, Array]:
        """Once all wanted pieces are held. Shares the memory."""
        return {spec.name: Array(spec.dtype, spec.shape, self._buffers[spec.name]) for spec in self._specs}

    # ------------------------------------------------------------------------------------- for whoever passes it on

    def data(self, name: str) -> memoryview | None:
        """Read-only; the manifest for ""."""
        if not name:
            return memoryview(self._packed)
        buffer = self._buffers.get(name)
        return None if buffer is None else buffer.toreadonly()

    def lacks(self, name: str, offset: int, size: int) -> bool:
        """Whether some of these bytes are not here, or not checked."""
        if not name or not size:
            return False
        first = self._first[name]
        end = first + num_pieces(offset + size, self._piece_bytes)
        return not all(self._held[first + offset // self._piece_bytes : end])

    def pieces(self) -> bytes:
        """`digend.wire.pulls.Pieces.held`."""
        return b"" if all(self._held) else packed_bits(self._held)


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


def _chosen(ref: BlobRef, manifest: Manifest, names: Collection[str] | None, max_bytes: int) -> list[TensorSpec]:
    if sum(spec.num_bytes for spec in manifest.tensors) != ref.num_bytes:
        raise BlobCorrupt(f"blob {ref.id}: its manifest does not add up to {ref.num_bytes} bytes")
    known = {spec.name: spec for spec in manifest.tensors}
    wanted = known.keys() if names is None else frozenset(names)
    for name in sorted(wanted - known.keys()):
        raise BlobCorrupt(f"blob {ref.id} has no tensor {name!r}{nearest(name, tuple(known))}")
    specs = [spec for name, spec in known.items() if name in wanted]
    num_bytes = sum(spec.num_bytes for spec in specs)
    if num_bytes > max_bytes:
        raise BlobCorrupt(f"blob {ref.id}: {num_bytes} bytes are over the limit of {max_bytes}")
    return specs
