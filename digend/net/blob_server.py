"""Tensors that stay with their maker: held in memory, sent in chunks to whoever has a reference, until freed.

Also what this process pulls itself and passes on meanwhile (`share`), as far as its pieces were checked. Must not know
what the tensors mean. Invariant: what is held changes only through `put`, `share` and `free`, which any thread may
call; only the task that runs `serve` touches the socket. A blob's id names the process's life, so another life
at the same address never has it.
"""

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import zmq

from digend.net.addresses import KEY_MARK, BadAddress, host_of, resolve, socket_path
from digend.net.blob_limits import MAX_CHUNK_BYTES
from digend.net.claims import AddressInUse
from digend.net.doorway import Arrival, Doorway
from digend.net.incoming import Incoming
from digend.net.layout import Layout, Part
from digend.net.porter import Refused
from digend.net.security import Security
from digend.net.spool import Spool, SpoolFull
from digend.wire.codec import decode, encode
from digend.wire.errors import Malformed, NotListed, ProtocolError
from digend.wire.pulls import GetManifest, GetPieces, Pieces, Pull, Pulled, PullRefused
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array, digest_bytes, manifest_of, pack_manifest
from digend.wire.verbs import PULLERS, TO_OWNER

STALE_S = 60.0
"""A socket file of this age that nobody listens on was left by a killed process."""


@dataclass(frozen=True, slots=True)
class Held:
    """A whole blob. `manifest` is packed."""

    manifest: bytes
    tensors: Mapping[str, Array]
    num_bytes: int
    on_disk: bool = False

    def layout(self, names: Sequence[str]) -> Layout:
        """Of all tensors where none is named. Raises KeyError."""
        return Layout({name: self.tensors[name].num_bytes for name in names or self.tensors})

    def data(self, part: Part) -> memoryview | None:
        """All bytes of a blob of its own are here."""
        return memoryview(self.tensors[part.name].data)[part.begin : part.end]

    def pieces(self) -> bytes:
        """All are here."""
        return b""


class Served(Protocol):
    """What `serve` answers from: a blob of this process, or one that it is still pulling (`Incoming`)."""

    @property
    def manifest(self) -> bytes: ...

    def layout(self, names: Sequence[str]) -> Layout: ...

    def data(self, part: Part) -> memoryview | None: ...

    def pieces(self) -> bytes: ...


class BlobServer:
    """Made by `bind`. `address` is the real endpoint, with its public key where it has one, and goes into every
    reference.
    """

    def __init__(
        self, doorway: Doorway, instance: str, memory_bytes: int | None = None, spool: Spool | None = None
    ) -> None:
        self.address = f"{doorway.address}{KEY_MARK}{doorway.public}" if doorway.public else doorway.address
        self.instance = instance
        self._doorway = doorway
        self.memory_limit_bytes = memory_bytes
        self._spool = spool
        self._lock = Lock()
        self._trouble = ""
        self._blobs: dict[str, Held] = {}
        self._shared: dict[str, Served] = {}
        self._numbers = count()

    @classmethod
    def bind(
        cls,
        data: str,
        instance: str,
        state_dir: Path,
        *,
        security: Security | None = None,
        refused: Refused = lambda key, address: None,
        memory_bytes: int | None = None,
        spool_bytes: int = 0,
    ) -> "BlobServer":
        """`data`: "ipc" (a socket file under `state_dir`) or tcp://HOST (a free port, unless one is named).

        `instance` names this life of the process; `refused(key, address)` is told whose handshake was refused. What
        does not fit into `memory_bytes` goes to disk, `spool_bytes` at most (`digend.net.spool`). TCP is in the clear
        where `security` has a trusted fabric. Raises BadAddress (NeedsKeys; also off the trusted fabric), AddressInUse,
        OSError.
        """
        endpoint = _endpoint(data, instance, state_dir, keyed=security is not None)
        fabric = security.fabric if security and data != "ipc" else None
        doorway = Doorway(endpoint, security, roles=PULLERS, refused=refused, clear=fabric is not None)
        if fabric is not None and security and not security.trusts(host_of(doorway.address)):
            doorway.close(0)
            raise BadAddress(f"data = {data!r} is {doorway.address}, which is not in keys.trusted_fabric ({fabric})")
        return cls(doorway, instance, memory_bytes, Spool(state_dir, instance, spool_bytes))

    def put(self, tensors: Mapping[str, Array]) -> BlobRef:
        """Holds the tensors, without a copy, until `free`; on disk where memory is used up, in memory after all where
        the disk does not take them. Reads each byte once for the digests. Any thread.
        """
        manifest = pack_manifest(manifest_of(tensors))
        num_bytes = sum(array.num_bytes for array in tensors.values())
        with self._lock:
            blob = f"{self.instance}-{next(self._numbers)}"
            over = self.memory_limit_bytes is not None and self._in_memory() + num_bytes > self.memory_limit_bytes
        on_disk = self._spooled(blob, tensors) if over else None
        held = Held(manifest, dict(tensors) if on_disk is None else on_disk, num_bytes, on_disk is not None)
        with self._lock:
            self._blobs[blob] = held
        return BlobRef(
            owner=self.address,
            instance=self.instance,
            id=blob,
            num_bytes=held.num_bytes,
            digest=digest_bytes(manifest),
        )

    def held(self, blob: str) -> Held | None:
        """A blob that was put here and is not freed. Any thread."""
        with self._lock:
            return self._blobs.get(blob)

    def share(self, blob: str, incoming: Incoming | Held) -> None:
        """Passes on another's blob, here or on its way, under the id its owner gave it, until `free`. Any thread."""
        with self._lock:
            self._shared[blob] = incoming

    def free(self, blobs: Iterable[str]) -> None:
        """Lets go of blobs by id; ids that are not held are ignored. Chunks on their way still arrive. Any thread."""
        for blob in blobs:
            with self._lock:
                held = self._blobs.pop(blob, None)
                self._shared.pop(blob, None)
            if held is not None and held.on_disk and self._spool:
                self._spool.free(blob)

    @property
    def held_bytes(self) -> int:
        """Of all blobs that were put here, on disk too."""
        with self._lock:
            return sum(held.num_bytes for held in self._blobs.values())

    @property
    def spooled_bytes(self) -> int:
        """Of those, on disk."""
        with self._lock:
            return sum(held.num_bytes for held in self._blobs.values() if held.on_disk)

    @property
    def spool_limit_bytes(self) -> int:
        """So many may be on disk."""
        return self._spool.quota_bytes if self._spool else 0

    @property
    def full(self) -> bool:
        """More is in memory than may be, because the disk did not take it."""
        with self._lock:
            return self.memory_limit_bytes is not None and self._in_memory() > self.memory_limit_bytes

    @property
    def trouble(self) -> str:
        """Why it is `full`, in words; empty where it is not."""
        return self._trouble if self.full else ""

    def _in_memory(self) -> int:
        return sum(held.num_bytes for held in self._blobs.values() if not held.on_disk)

    def _spooled(self, blob: str, tensors: Mapping[str, Array]) -> dict[str, Array] | None:
        try:
            return self._spool.keep(blob, tensors) if self._spool else None
        except SpoolFull as error:
            self._trouble = f"tensors for others are over blobs.memory_gib, and the spool has no room: {error}"
            return None

    async def serve(self) -> None:
        """Answers until `close`. One task, for the socket's whole life."""
        while (arrival := await self._doorway.receive()) is not None:
            with suppress(zmq.ZMQError):  # gone, or takes nothing: its own deadline tells it
                self._doorway.channel.send([arrival.peer, *self._reply(arrival)])

    def close(self, linger_ms: int = 0) -> None:
        """Frees the address and all blobs."""
        self._doorway.close(linger_ms)
        with self._lock:
            self._blobs.clear()
            self._shared.clear()
        if self._spool:
            self._spool.close()

    def _reply(self, arrival: Arrival) -> list[Any]:
        try:
            if arrival.unlisted:
                raise NotListed
            if len(arrival.frames) != 1:
                raise Malformed(f"{len(arrival.frames)} frames, not one")
            asked = decode(arrival.frames[0], TO_OWNER)
            return self._answer(asked)
        except ProtocolError as error:
            return [encode(PullRefused(request="", reason=str(error)))]

    def _answer(self, asked: GetManifest | Pull | GetPieces) -> list[Any]:
        if isinstance(asked, Pull):
            return self._chunk(asked)
        return self._pieces(asked) if isinstance(asked, GetPieces) else self._manifest(asked)

    @property
    def _not_here(self) -> str:
        return f"{self.instance} does not hold it (freed, or made in another life)"

    def _manifest(self, asked: GetManifest) -> list[Any]:
        held = self._served(asked.blob)
        if held is None:
            return _refusal(asked, self._not_here)
        if not _sendable(asked):
            return _refusal(asked, f"bytes {asked.offset} + {asked.size} cannot be sent at once")
        end = asked.offset + asked.size
        ahead = _first_bytes(held, asked) if asked.offset == 0 and end >= len(held.manifest) else []
        header = encode(Pulled(request=asked.request, total=len(held.manifest)))
        return [header, held.manifest[asked.offset : end], *ahead]

    def _chunk(self, pull: Pull) -> list[Any]:
        held = self._served(pull.blob)
        if held is None:
            return _refusal(pull, self._not_here)
        if not _sendable(pull):
            return _refusal(pull, f"bytes {pull.offset} + {pull.size} cannot be sent at once")
        try:
            layout = held.layout(pull.names)
        except KeyError as error:
            return _refusal(pull, f"it has no tensor {error}")
        chunk = _data(held, layout, pull.offset, pull.size)
        if chunk is None:
            return _refusal(pull, f"bytes {pull.offset} + {pull.size} have not come yet")
        return [encode(Pulled(request=pull.request, total=layout.num_bytes)), *chunk]

    def _pieces(self, asked: GetPieces) -> list[Any]:
        held = self._served(asked.blob)
        if held is None:
            return _refusal(asked, self._not_here)
        return [encode(Pieces(request=asked.request, held=held.pieces()))]

    def _served(self, blob: str) -> Served | None:
        with self._lock:
            return self._blobs.get(blob) or self._shared.get(blob)


def _refusal(asked: GetManifest | Pull | GetPieces, reason: str) -> list[Any]:
    return [encode(PullRefused(request=asked.request, reason=f"blob {asked.blob}: {reason}"))]


def _sendable(asked: GetManifest | Pull) -> bool:
    ahead = asked.ahead if isinstance(asked, GetManifest) else 0
    return asked.offset >= 0 and 0 <= asked.size <= MAX_CHUNK_BYTES and 0 <= ahead <= MAX_CHUNK_BYTES


def _data(held: Served, layout: Layout, offset: int, size: int) -> list[memoryview] | None:
    """None where some of these bytes have not come yet."""
    chunk: list[memoryview] = []
    for part in layout.parts(offset, size):
        data = held.data(part)
        if data is None:
            return None
        chunk.append(data)
    return chunk


def _first_bytes(held: Served, asked: GetManifest) -> list[memoryview]:
    """None where a tensor is not there, or not yet: whoever reads the manifest then knows."""
    with suppress(KeyError):
        return _data(held, held.layout(asked.names), 0, asked.ahead) or []
    return []


def _endpoint(data: str, instance: str, state_dir: Path, *, keyed: bool) -> str:
    if data != "ipc":
        if data.startswith("ipc:"):
            raise BadAddress(f"data = {data!r}: write 'ipc' (socket files go under `state`) or tcp://127.0.0.1")
        return resolve(data, wildcard=True, keyed=keyed)
    folder = state_dir.absolute() / "blobs"
    name = blake2b(instance.encode(), digest_size=6).hexdigest()
    endpoint = resolve(f"ipc://{folder / name}.sock")
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    path = socket_path(endpoint)
    if path is not None and _listens(path):
        raise AddressInUse(f"another process has the instance name {instance!r} and listens at {path}")
    return endpoint


def _sweep(folder: Path) -> None:
    """Removes socket files of killed processes; a young one may belong to a process that is about to listen."""
    for path in folder.glob("*.sock"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S and not _listens(path):
                path.unlink()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
