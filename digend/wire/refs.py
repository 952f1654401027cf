"""References to bytes that stay with their maker: the driver passes these, never the bytes (docs/protocol.md)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """A bundle of named tensors, served by `owner` until it is told to free it.

    `digest` covers the bundle's manifest (names, dtypes, shapes and digest of each tensor), so that any subset of the
    tensors can be pulled and checked. `num_bytes` is the payload without the manifest.
    """

    owner: str
    instance: str
    id: str
    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsChanges:
    """`blob` has the form of `digend.wire.changes`; `since` is the version of the same incarnation that it is told
    against.
    """

    since: int
    blob: BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRef:
    """A published policy version. Receivers must bind exactly `num_tensors`; fewer is an error, never a warning."""

    blob: BlobRef
    job: str
    incarnation: int
    version: int
    num_tensors: int
    form: str
    """"full" or "lora"."""
    changes: WeightsChanges | None = None
    """The same version as what changed, for whoever has the one that it names; where that is less."""
    store: str = ""
    """host:port of the store at which the members of its broadcast meet; "" where it is only pulled."""

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        """All that is freed when the version is."""
        return (self.blob,) if self.changes is None else (self.blob, self.changes.blob)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A job's checkpoint on disk, which another job starts from. `digest` is its manifest's; `node`: where it lies, ""
    where that is not known."""

    job: str
    global_step: int
    version: int
    path: str
    digest: str
    node: str = ""
