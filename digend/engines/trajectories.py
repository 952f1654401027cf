"""What an update needs of its samples, fetched whole before any gradient is touched: latents, log-probs, embeddings.

Owns which tensors those are (an algorithm's `keeps`) and the check that a trajectory holds what the task expects of it.
Invariant: either everything of a micro-batch is here, or the update has not begun.
"""

# Shapes: n kept latents of a sample, those at sorted(S_i and each one after); "..." the latent dimensions of a sample.

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from digend.algorithms.spec import Kept
from digend.engines.arrays import to_tensor
from digend.engines.conditions import Conditions
from digend.engines.protocols import Context, TaskFault
from digend.models.spec import Condition
from digend.wire.refs import BlobRef
from digend.wire.tasks import UpdateItem
from digend.wire.tensors import Array


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One sample's chain and its condition.

    tensors: "latents" [n, ...] at the timesteps `kept`, "log_probs" [len(S_i)], "means" [len(S_i), ...], "clean" [...];
    those that the algorithm keeps.
    """

    kept: tuple[int, ...]
    tensors: Mapping[Kept, Tensor]
    condition: Condition

    @property
    def latents(self) -> Tensor:
        """[...]: some latents of it, for their shape."""
        return self.tensors["clean"] if "clean" in self.tensors else self.tensors["latents"][0]

    def at(self, index: int) -> Tensor:
        """[...]: the latents before timestep `index`."""
        return self.tensors["latents"][self.kept.index(index)]


def fetch_trajectories(
    items: Sequence[UpdateItem], keeps: Sequence[Kept], conditions: Conditions, context: Context
) -> list[Trajectory]:
    """One trajectory an item. Raises TaskFault("blob_lost"), or "internal" for one of another shape than asked."""
    found = conditions.fetch((item.condition for item in items), context)
    names: dict[BlobRef, list[str]] = {}
    for item in items:
        names.setdefault(item.trajectory, []).extend(f"{item.prompt}/{item.index}/{each}" for each in keeps)
    blobs = {ref: context.pull(ref, wanted) for ref, wanted in names.items()}
    return [_trajectory(item, keeps, blobs[item.trajectory], found[item.condition.digest]) for item in items]


def _trajectory(
    item: UpdateItem, keeps: Iterable[Kept], arrays: Mapping[str, Array], condition: Condition
) -> Trajectory:
    key = f"{item.prompt}/{item.index}"
    tensors = {each: to_tensor(arrays[f"{key}/{each}"]) for each in keeps}
    kept = tuple(sorted(set(item.timesteps) | {index + 1 for index in item.timesteps}))
    expected = {"latents": len(kept), "log_probs": len(item.timesteps), "means": len(item.timesteps)}
    for name, tensor in tensors.items():
        if name in expected and (tensor.ndim == 0 or tensor.shape[0] != expected[name]):
            raise TaskFault(
                "internal",
                f"trajectory of sample {key} holds {name} of shape {tuple(tensor.shape)} "
                f"for the timesteps {list(item.timesteps)}",
            )
    return Trajectory(kept, tensors, condition)
