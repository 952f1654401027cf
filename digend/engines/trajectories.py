"""What an update needs of its samples, fetched whole before any gradient is touched: latents, log-probs, embeddings.

Owns the check that a trajectory holds what the task expects of it. Invariant: either everything of a micro-batch is
here, or the update has not begun.
"""

# Shapes: n kept latents of a sample, those at sorted(S_i and each one after); "..." the latent dimensions of a sample.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from digend.engines.arrays import to_tensor
from digend.engines.conditions import Conditions
from digend.engines.protocols import Context, TaskFault
from digend.models.spec import Condition
from digend.wire.refs import BlobRef
from digend.wire.tasks import UpdateItem
from digend.wire.tensors import Array


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One sample's chain: `latents` [n, ...] at the timesteps `kept`, `log_probs` [len(S_i)], and its condition."""

    kept: tuple[int, ...]
    latents: Tensor
    log_probs: Tensor
    condition: Condition

    def at(self, index: int) -> Tensor:
        """[...]: the latents before timestep `index`."""
        return self.latents[self.kept.index(index)]


def fetch_trajectories(items: Sequence[UpdateItem], conditions: Conditions, context: Context) -> list[Trajectory]:
    """One trajectory an item. Raises TaskFault("blob_lost"), or "internal" for one of another shape than asked."""
    found = conditions.fetch((item.condition for item in items), context)
    names: dict[BlobRef, list[str]] = {}
    for item in items:
        key = f"{item.prompt}/{item.index}"
        names.setdefault(item.trajectory, []).extend((f"{key}/latents", f"{key}/log_probs"))
    blobs = {ref: context.pull(ref, wanted) for ref, wanted in names.items()}
    return [_trajectory(item, blobs[item.trajectory], found[item.condition.digest]) for item in items]


def _trajectory(item: UpdateItem, arrays: Mapping[str, Array], condition: Condition) -> Trajectory:
    key = f"{item.prompt}/{item.index}"
    latents, log_probs = to_tensor(arrays[f"{key}/latents"]), to_tensor(arrays[f"{key}/log_probs"])
    kept = tuple(sorted(set(item.timesteps) | {index + 1 for index in item.timesteps}))
    if latents.shape[0] != len(kept) or log_probs.shape != (len(item.timesteps),):
        raise TaskFault(
            "internal",
            f"trajectory of sample {key} holds {latents.shape[0]} latents and {tuple(log_probs.shape)} log-probs "
            f"for the timesteps {list(item.timesteps)}",
        )
    return Trajectory(kept, latents, log_probs, condition)
