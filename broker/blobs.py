"""Blobs that nobody needs any more: their makers are told to free them, now or when they can be told.

Owns the debts. Invariant: a blob that the core has forgotten was freed, is owed to a maker that may come back, or died
with its process.
"""

from collections.abc import Iterable

from broker.commands import Free
from broker.microbatch import Fragment
from broker.state import State, Worker
from digend.wire.refs import BlobRef
from digend.wire.tasks import CommitResult, EncodeResult, GenerateResult, PrepareResult, ResultBody


def refs_of(result: ResultBody | None) -> list[BlobRef]:
    """The blobs that a result names."""
    if isinstance(result, GenerateResult):
        return [result.samples] + ([result.trajectory] if result.trajectory else [])
    if isinstance(result, EncodeResult):
        return list(result.conditions.values())
    if isinstance(result, PrepareResult | CommitResult):
        return list(result.weights.blobs) if result.weights else []
    return []


def free(state: State, refs: Iterable[BlobRef]) -> None:
    """Tell the makers, or remember it for those that are away."""
    by_instance: dict[str, list[str]] = {}
    for ref in refs:
        by_instance.setdefault(ref.instance, []).append(ref.id)
    live = state.live_instances() if by_instance else {}
    for instance, blobs in by_instance.items():
        worker = live.get(instance)
        if worker is None or worker.session is None:
            state.owed.setdefault(instance, []).extend(blobs)
        else:
            _tell(state, worker, worker.session, blobs)


def free_fragments(state: State, fragments: Iterable[Fragment]) -> None:
    """Their samples and trajectories are no longer needed."""
    refs: list[BlobRef] = []
    for fragment in fragments:
        refs += refs_of(fragment.result)
        fragment.result = fragment.owner = None
    free(state, refs)


def pay(state: State, worker: Worker) -> None:
    """A process said HELLO: free what could not be freed while it was away. What its predecessor held died with it."""
    earlier = state.instances.get(worker.name)
    state.instances[worker.name] = worker.hello.instance
    if earlier is not None and earlier != worker.hello.instance:
        state.owed.pop(earlier, None)
    blobs = state.owed.pop(worker.hello.instance, [])
    if blobs and worker.session is not None:
        _tell(state, worker, worker.session, blobs)


def forget_told(state: State) -> None:
    """The driver was restarted: whether what the last step told was sent is not known, so it is told again."""
    for instance, blobs in state.unsure.items():
        state.owed.setdefault(instance, []).extend(blobs)


def _tell(state: State, worker: Worker, session: str, blobs: list[str]) -> None:
    state.out.append(Free(session=session, blobs=tuple(blobs)))
    state.told.setdefault(worker.hello.instance, []).extend(blobs)
