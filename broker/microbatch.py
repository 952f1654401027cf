"""A micro-batch and its fragments: from pending to applied. Evaluation uses the same life, one prompt a micro-batch.

pending -> claimed (stamped with a version; fragments dealt) -> generated -> scored -> resolved -> ready (UQ) ->
updating -> applied. A loss sends fragments, or the whole, back; the stamp stays, or all is made again.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from broker.plan import GroupPlan
from broker.work import Share
from digend.wire.tasks import GenerateResult, SampleScore, UpdateResult

Stamp = tuple[int, int]
"""(incarnation, policy version): all samples of a micro-batch are of one."""
SampleKey = tuple[int, int]
"""(position of the group in the micro-batch, position of the sample in the group)."""


class Phase(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    RESOLVED = "resolved"
    READY = "ready"
    UPDATING = "updating"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Samples of a fragment that are scored in one task. `worker`: for whom it was cut, "" for anybody; `tries`: how
    often they were scored in vain."""

    keys: tuple[SampleKey, ...]
    worker: str = ""
    tries: int = 0

    @property
    def name(self) -> str:
        """Different for each portion of a fragment: whom it was cut for, else its first sample."""
        return self.worker or "/".join(str(part) for part in self.keys[0])


@dataclass(slots=True, eq=False)
class Fragment:
    """One worker's share. `owner` is the instance that holds its blobs once it is generated."""

    index: int
    share: Share
    worker: str | None
    lease: str | None = None
    owner: str | None = None
    result: GenerateResult | None = None
    to_score: dict[str, Portion] = field(default_factory=dict)
    """By name; the fragment is in SQ as long as there is one."""
    being_scored: dict[str, Portion] = field(default_factory=dict)
    """By lease."""
    scores: dict[SampleKey, SampleScore] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    """Digest of the embedding each prompt was rolled out with: the trainer must use the same."""

    @property
    def keys(self) -> list[SampleKey]:
        return [(group, sample) for group, members in self.share for sample in members]

    @property
    def num_samples(self) -> int:
        return sum(len(members) for _, members in self.share)

    @property
    def unscored(self) -> list[SampleKey]:
        return [key for key in self.keys if key not in self.scores]

    @property
    def num_to_score(self) -> int:
        """Samples that wait in SQ."""
        return sum(len(portion.keys) for portion in self.to_score.values())

    @property
    def complete(self) -> bool:
        return self.result is not None and len(self.scores) == self.num_samples

    def forget(self) -> None:
        """Its blobs are gone: generate again."""
        self.lease = self.owner = self.result = self.worker = None
        self.to_score.clear()
        self.being_scored.clear()
        self.scores.clear()
        self.conditions.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A sample that will be trained on."""

    key: SampleKey
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What scoring came to: selection after normalisation on full groups, and what was lost on the way."""

    selected: tuple[Selected, ...]
    num_pairs: int
    rewards: tuple[float, ...]
    num_masked: int
    dropped: tuple[str, ...]
    num_zero_std: int
    global_std: float | None
    """What the advantages were divided by where `std = "global"`."""


@dataclass(slots=True, eq=False)
class MicroBatch:
    purpose: Literal["train", "evaluate"]
    rollout: int
    index: int
    global_step: int
    groups: tuple[GroupPlan, ...]
    phase: Phase = Phase.PENDING
    stamp: Stamp | None = None
    pinned: Stamp | None = None
    """Deterministic staleness: the version it is to be made with, decided before it is claimed."""
    fragments: list[Fragment] = field(default_factory=list)
    outcome: Outcome | None = None
    group_metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    update_lease: str | None = None
    update: UpdateResult | None = None
    failures: int = 0
    late_scores: int = 0
    """Leases on scores of it that ended without one, and took its samples with them."""
    assisted: bool = False
    applied_first: bool = False
    incomplete: int = 0
    """Position of a fragment that was not scored when it was last looked at."""
    prompts: frozenset[str] = field(init=False)
    """Their uids, for membership only."""

    def __post_init__(self) -> None:
        self.prompts = frozenset(group.prompt.uid for group in self.groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(group.samples) for group in self.groups)

    @property
    def scored(self) -> bool:
        """Looks first where something was missing the last time: a pool of a thousand asks a thousand times."""
        num = len(self.fragments)
        for at in range(self.incomplete, self.incomplete + num):
            if not self.fragments[at % num].complete:
                self.incomplete = at % num
                return False
        return num > 0

    @property
    def owners(self) -> set[str]:
        return {fragment.owner for fragment in self.fragments if fragment.owner}

    def forget(self) -> None:
        """Back to pending, without stamp: it will be made again at the version of then."""
        self.phase, self.stamp, self.pinned, self.outcome = Phase.PENDING, None, None, None
        self.update_lease = self.update = None
        self.assisted = self.applied_first = False
        self.fragments.clear()
        self.group_metrics.clear()

    def makers(self) -> dict[SampleKey, Fragment]:
        """The fragment of each sample."""
        return {key: fragment for fragment in self.fragments for key in fragment.keys}

    def scores(self) -> dict[SampleKey, SampleScore]:
        merged: dict[SampleKey, SampleScore] = {}
        for fragment in self.fragments:
            merged.update(fragment.scores)
        return merged
