"""Data-plane messages between whoever pulls a blob and its owner, and the manifest of a blob (docs/protocol.md)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Bytes [offset, offset + size) of one tensor of a blob; name "" asks for the manifest."""

    request: str
    blob: str
    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The bytes follow as a raw frame; `total` is the tensor's size."""

    request: str
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRefused:
    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a blob holds, in order; its own digest is the blob's digest."""

    tensors: tuple[TensorSpec, ...]
