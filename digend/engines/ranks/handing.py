"""What a task of the ranks needs of the world: pulled once, by rank 0, and the Context that all of them work with.

Owns which blobs a task names. Must not know how commands travel. Invariant: nothing is handed on before all of it is
there, so a lost blob is rank 0's error alone and the other ranks never hear of the task.
"""

from collections.abc import Collection, Mapping

from digend.engines.arrays import to_array
from digend.engines.jobs import Job
from digend.engines.protocols import Context, TaskFault, Timer
from digend.engines.ranks.bundles import Blobs
from digend.engines.ranks.peers import Peers
from digend.wire.refs import BlobRef
from digend.wire.tasks import GenerateTask, TaskBody, UpdateTask
from digend.wire.tensors import Array


def blobs_of(task: TaskBody, job: Job | None, context: Context) -> Blobs:
    """The conditions of a task, and the trajectories that it trains. Raises TaskFault("blob_lost")."""
    if job is None or not isinstance(task, UpdateTask | GenerateTask):
        return {}
    with context.stage("fetch"):
        refs = [each.condition for each in (task.items if isinstance(task, UpdateTask) else task.groups)]
        found = job.conditions.fetch(refs, context)
        blobs: dict[str, Mapping[str, Array]] = {
            digest: {name: to_array(tensor) for name, tensor in condition.items()}
            for digest, condition in found.items()
        }
        if isinstance(task, UpdateTask):
            blobs |= {ref.digest: context.pull(ref, names) for ref, names in _trajectories(task, job).items()}
    return blobs


def _trajectories(task: UpdateTask, job: Job) -> dict[BlobRef, list[str]]:
    names: dict[BlobRef, list[str]] = {}
    for item in task.items:
        wanted = (f"{item.prompt}/{item.index}/{kept}" for kept in job.algorithm.keeps)
        names.setdefault(item.trajectory, []).extend(wanted)
    return names


class HandedContext:
    """A task's Context on one of several ranks: tensors are those that were handed out, progress is agreed on, and only
    rank 0 serves anything."""

    def __init__(self, context: Context, peers: Peers, blobs: Blobs) -> None:
        self._context = context
        self._peers = peers
        self._blobs = blobs

    def progress(self, done: int, total: int) -> None:
        """Raises `Cancelled` on every rank when rank 0's lease was revoked."""
        with self._peers.agreed():
            self._context.progress(done, total)

    def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        blob = self._blobs.get(ref.digest)
        if blob is None:
            raise TaskFault("internal", f"blob {ref.id} was not handed to the ranks")
        return blob if names is None else {name: blob[name] for name in names}

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef:
        if self._peers.rank:
            return BlobRef(owner="", instance="", id="", num_bytes=0, digest="")
        return self._context.serve(tensors)

    def stage(self, name: str) -> Timer:
        return self._context.stage(name)

    def computed(self, flops: float) -> None:
        self._context.computed(flops)
