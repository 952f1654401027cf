"""The `Context` of one task: tensors in and out, progress, revocation, stage timers. Safe from the compute thread.

Owns the blobs the task serves until the task succeeds. Invariant: once revoked, every call that could take long raises
`Cancelled`; blobs of a task that did not succeed are freed, because nobody will ever hear of them.
"""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError, Future
from typing import Protocol

from daemons.worker.stages import Stages, StageTimer
from digend.engines.protocols import Cancelled, TaskFault
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array


class Blobs(Protocol):
    """This process's own blobs and the way to those of others; every method may be called from any thread."""

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef: ...

    def free(self, blobs: Collection[str]) -> None: ...

    def request(self, ref: BlobRef, names: Collection[str] | None) -> "Future[Mapping[str, Array]]":
        """Begins a pull. The future raises `BlobLost`-like errors as TaskFault("blob_lost")."""
        ...


class TaskContext:
    """Given to the engine with one task."""

    def __init__(self, blobs: Blobs) -> None:
        self.stages = Stages()
        self.done = 0
        self.total = 0
        self.flops = 0.0
        self._blobs = blobs
        self._served: list[str] = []
        self._lock = threading.Lock()
        self._revoked: str | None = None
        self._pulling: Future[Mapping[str, Array]] | None = None

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.check()

    def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        with self.stage("fetch"):
            with self._lock:
                self.check()
                self._pulling = self._blobs.request(ref, names)
            try:
                return self._pulling.result()
            except CancelledError:
                raise Cancelled(self._revoked or "the process ends") from None
            finally:
                self._pulling = None

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef:
        ref = self._blobs.serve(tensors)
        self._served.append(ref.id)
        return ref

    def stage(self, name: str) -> StageTimer:
        return StageTimer(self.stages, name)

    def computed(self, flops: float) -> None:
        self.flops = flops

    def check(self) -> None:
        """Raises `Cancelled` once the lease was revoked."""
        if self._revoked is not None:
            raise Cancelled(self._revoked)

    def revoke(self, reason: str) -> None:
        """From the event loop: the task stops at its next progress report, or now if it waits for tensors."""
        with self._lock:
            self._revoked = reason
            pulling = self._pulling
        if pulling is not None:
            pulling.cancel()

    def withdraw(self) -> None:
        """The task did not succeed: free what it served."""
        self._blobs.free(self._served)
        self._served = []


__all__ = ["Blobs", "TaskContext", "TaskFault"]
