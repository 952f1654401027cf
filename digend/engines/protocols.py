"""What a worker daemon calls: blocking compute behind small Protocols, torch inside, none in the signatures.

`Context` is how an engine reaches the world: it pulls and serves tensors, reports progress and learns that it should
stop. Arrays are `digend.wire.tensors.Array` (dtype name, shape, bytes), so that bfloat16 travels without torch.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from digend.wire.broadcasts import Broadcast
from digend.wire.ranks import Ranks
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import ResultBody, TaskBody, TaskError
from digend.wire.tensors import Array


class Cancelled(Exception):
    """The lease was revoked; the engine stopped between two forward passes."""


class TaskFault(Exception):
    """A task failed in a way the core knows how to handle; see `TASK_ERRORS`."""

    def __init__(self, reason: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.error = TaskError(reason=reason, message=message, retry=retry)


class BroadcastFailed(Exception):
    """A broadcast of a policy version came to nothing: whoever has no version now pulls it. Says why."""


class Context(Protocol):
    """Given to an engine with each task; its methods are safe to call from the executor thread and block."""

    def progress(self, done: int, total: int) -> None:
        """One denoising step or one chunk of pairs is done. Raises `Cancelled` when the lease was revoked."""
        ...

    def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        """Tensors of a blob, checked against their digests. Raises `TaskFault("blob_lost")`."""
        ...

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef:
        """Keep tensors until the driver frees them."""
        ...

    def stage(self, name: str) -> "Timer":
        """`with context.stage("decode"):` adds to the receipt."""
        ...

    def computed(self, flops: float) -> None:
        """Floating-point operations of the task so far, for the receipt."""
        ...


class Timer(Protocol):
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


class Engine(Protocol):
    """One process's compute. `run` is called for one task after another on one thread."""

    def run(self, task: TaskBody, context: Context) -> ResultBody: ...

    def check_weights(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> int:
        """Names, shapes and types against the loaded module; returns how many bind. Raises TaskFault("weights").

        Called from another thread while `run` works: it must not touch the module's values.
        """
        ...

    def adopt(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> None:
        """Swap a staged version in (a trainer ignores it). Called between two tasks, on the executor thread."""
        ...

    def end(self, job: str) -> None:
        """Unload a job."""
        ...

    def applied(self, job: str) -> tuple[int, int, tuple[int, ...]]:
        """Trainer: (version, global_step, micro-batches in the gradient of that step); others: (version, -1, ())."""
        ...


class RankedEngine(Engine, Protocol):
    """An engine that can be one of a trainer's ranks. All but `leave` are called on the executor thread and block."""

    def open_store(self, host: str) -> str:
        """Rank 0 of a trainer: serve, at this host alone, the store in which the ranks meet; returns host:port."""
        ...

    def join(self, ranks: Ranks) -> None:
        """Meet the other ranks, after which `run` on rank 0 means all of them. Raises TaskFault("rank_lost") where not
        all come within `ranks.timeout_s`."""
        ...

    def leave(self) -> None:
        """Be one of several ranks no more. Waits for nobody; may be called from another thread, and what the executor
        thread is in the middle of then raises within the ranks' deadline."""
        ...

    def follow(self, context: Context) -> None:
        """Ranks other than 0: do what rank 0 does until it leaves, with its tensors. Raises TaskFault("rank_lost")
        where another rank is gone, Cancelled where `context.progress` does."""
        ...


LeftS = Callable[[], float]
"""How many seconds a broadcast has left; from any thread. Raises BroadcastFailed once it is to end."""


class Circle(Protocol):
    """The members of one broadcast, met: they were told the same, and nobody is missing."""

    said: Sequence[str]
    """What each of them said for itself, by rank."""

    def share(self, data: memoryview) -> None:
        """Writable bytes, of the same number on all members: afterwards those of rank 0. Raises BroadcastFailed."""
        ...

    def close(self) -> None:
        """Leave the others, whatever they do. Waits for nobody."""
        ...


class BroadcastEngine(Engine, Protocol):
    """An engine whose process may be a member of broadcasts. `run` of a trainer gives each published version a
    store where the job asks for broadcasts."""

    def meet(self, store: str, place: Broadcast, agreed: str, own: str, left_s: LeftS) -> Circle:
        """Meet the other members at a version's store; called from a thread of its own, also while `run` works.

        `agreed`: what all members must say alike; `own`: what each says for itself. Raises BroadcastFailed: somebody
        is missing, is there twice, was told something else or of another epoch.
        """
        ...
