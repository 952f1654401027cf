"""Data-plane messages between whoever pulls a blob and its owner, and the manifest of a blob (docs/protocol.md)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GetManifest:
    """Bytes [offset, offset + size) of a blob's packed manifest. Where that is all of it, the first `ahead` bytes of
    the tensors come with it, laid end to end as for `Pull`.
    """

    request: str
    blob: str
    offset: int
    size: int
    ahead: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Bytes [offset, offset + size) of a blob's tensors laid end to end, as far as they go: of all, in manifest order,
    or of those named, in the order named, which can be asked for before the manifest is here.
    """

    request: str
    blob: str
    offset: int
    size: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The bytes follow as raw frames: of the manifest, and one for each tensor that has some of them. `total`: bytes of
    the manifest, or of the tensors that were laid end to end.
    """

    request: str
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRefused:
    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPieces:
    """Which pieces of a blob have you? Asked of a worker that is still pulling it."""

    request: str
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A bit for each piece of all tensors in manifest order, lowest first, set where it is here and checked; empty: all
    are.
    """

    request: str
    held: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    digests: bytes
    """16 bytes for each piece (`tensors.piece_bytes`), so that a piece can be checked, and passed on, before the
    rest is here.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a blob holds, in order; its own digest is the blob's digest."""

    tensors: tuple[TensorSpec, ...]
