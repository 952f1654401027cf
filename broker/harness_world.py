"""What simulated workers share: blobs that live and die with their makers, checkpoints, the lineage of policies.

Keeps the ledger of what was trained on. Must not know the core. Invariant: bytes are replaced by what they stand for
(which policy drew a sample, from which embedding), so that a wrong pairing is seen at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from digend.wire.refs import BlobRef

if TYPE_CHECKING:
    from broker.harness_ranks import Meeting
    from broker.harness_shell import Shell
    from digend.wire.broadcasts import Broadcast

BASE_POLICY = "base"


class InvariantBroken(AssertionError):
    """The core asked for something that can never be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One sample of a trajectory or samples blob: the policy and the embedding it was rolled out with."""

    policy: str
    condition: str
    timesteps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """kind: condition, samples, trajectory or weights. `draws` by `{prompt uid}/{sample index}`."""

    kind: str
    job: str
    digest: str
    draws: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One (sample, timestep) in a gradient."""

    rollout: int
    micro_batch: int
    prompt: str
    index: int
    timestep: int
    advantage: float
    policy: str
    """that rolled it out"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """A commit that was carried out: from which policy to which, on what. `z0s`: the divisor of each micro-batch."""

    job: str
    incarnation: int
    global_step: int
    version: int
    policy: str
    made: str | None
    """None where the step was skipped"""
    micro_batches: tuple[int, ...]
    pairs: tuple[Pair, ...]
    z0s: tuple[int, ...]
    z0: int
    z: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A checkpoint on disk."""

    job: str
    version: int
    global_step: int
    policy: str


@dataclass(slots=True)
class World:
    """`blobs` by instance, then id; an instance that died is absent."""

    blobs: dict[str, dict[str, Blob]] = field(default_factory=dict)
    freed: dict[str, int] = field(default_factory=dict)
    """blob id -> how often it was freed"""
    disk: dict[str, Snapshot] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    """policy -> the policy it was made from"""
    ledger: list[OptimizerStep] = field(default_factory=list)
    num_blobs: int = 0
    meetings: "dict[str, Meeting]" = field(default_factory=dict)
    """store -> who met there"""
    circles: "dict[str, dict[int, tuple[Broadcast, Shell]]]" = field(default_factory=dict)
    """store -> who came to a broadcast there, by rank, and what it was told"""

    def keep(self, instance: str, owner: str, blob: Blob) -> BlobRef:
        self.num_blobs += 1
        ref = BlobRef(owner=owner, instance=instance, id=f"b{self.num_blobs}", num_bytes=1, digest=blob.digest)
        self.blobs[instance][ref.id] = blob
        return ref

    def come(self, store: str, place: "Broadcast", shell: "Shell") -> None:
        """To a broadcast."""
        self.circles.setdefault(store, {})[place.rank] = (place, shell)

    def are_there(self, store: str, place: "Broadcast") -> bool:
        """Whether all members of the broadcast came, were told the same, and are neither dead nor standing still."""
        came = self.circles.get(store, {})
        told = [(each.epoch, each.members) for each, _ in came.values()]
        return (
            sorted(came) == list(range(len(place.members)))
            and all(each == (place.epoch, place.members) for each in told)
            and all(shell.alive and not shell.frozen for _, shell in came.values())
        )

    def find(self, ref: BlobRef) -> Blob | None:
        return self.blobs.get(ref.instance, {}).get(ref.id)

    def free(self, instance: str, blob: str) -> None:
        self.freed[blob] = self.freed.get(blob, 0) + 1
        self.blobs[instance].pop(blob, None)

    def new_policy(self, parent: str) -> str:
        name = f"policy{len(self.parents) + 1}"
        self.parents[name] = parent
        return name

    def lineage(self, policy: str) -> tuple[str, ...]:
        """The policy and its ancestors, newest first."""
        line = [policy]
        while line[-1] in self.parents:
            line.append(self.parents[line[-1]])
        return tuple(line)

    def left(self, job: str) -> dict[str, Blob]:
        """Blobs of a job that living processes still hold, by id."""
        return {name: blob for held in self.blobs.values() for name, blob in held.items() if blob.job == job}
