"""A job as the planner sees it, a placement of its work, and the times of one micro-batch that follow from both.

Owns the arithmetic from seconds a sample to the g, h, t, s, c, y of the schedule model. Invariant: a generator pool is
as slow as its slowest share, whole samples being dealt (GAP), as in the live core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from broker.planning.devices import Device
from broker.schedule.snapshot import Model
from broker.schedule.times import Times
from broker.work import quantisation_loss

MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """prompts, samples: P and K; groups: m; updates: u; width: TSP; dedicated: reward processes score; assisted: TAG is
    allowed (a deterministic job has none).

    A rollout with u updates is planned as one global step whose commit takes u times as long.
    """

    prompts: int
    samples: int
    groups: int = 1
    updates: int = 1
    width: int = 1
    staleness: float = 0.0
    dedicated: bool = False
    assisted: bool = True

    @property
    def num_samples(self) -> int:
        return self.prompts * self.samples

    def micro_batches(self, groups: int) -> int:
        return ceil(self.prompts / groups)

    def sizes(self) -> list[int]:
        """Micro-batch sizes in groups that cut a rollout evenly, the smallest first; that of the job is always one."""
        whole = [groups for groups in range(1, self.prompts + 1) if self.prompts % groups == 0]
        return sorted({*(groups for groups in whole if self.prompts // groups % self.updates == 0), self.groups})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Who does what. `commit`, `switch`: seconds of the trainer."""

    trainer: Device
    generators: tuple[Device, ...]
    rewards: tuple[Device, ...] = ()
    commit: float = 0.0
    switch: float = 0.0

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those that could generate and train."""
        return (*self.generators, self.trainer)


def shares(devices: Sequence[Device]) -> dict[str, float]:
    """Speeds of generation that sum to 1."""
    raw = {device.name: 1 / device.generates for device in devices}
    total = sum(raw.values())
    return {name: speed / total for name, speed in raw.items()}


def loss_of(placement: Placement, shape: Shape, groups: int) -> float:
    """How much longer the slowest share of a micro-batch takes than a perfect one, because samples are whole.

    0 where there are fewer samples than generators: micro-batches then take turns, and the pool is kept busy by
    several at once.
    """
    num = groups * shape.samples
    return 0.0 if num < len(placement.generators) else quantisation_loss(num, shares(placement.generators))


def model_of(placement: Placement, shape: Shape, groups: int, width: int, *, batches: int = 1) -> Model:
    """The times of `batches` micro-batches of `groups` groups, taken as one."""
    num = groups * shape.samples * batches
    generators = placement.generators
    perfect = num / sum(1 / device.generates for device in generators)
    scorers = placement.rewards if shape.dedicated else generators
    return Model(
        times=Times.exact(
            generate=exact(perfect * (1 + loss_of(placement, shape, groups * batches)), positive=True),
            assist=exact(num * placement.trainer.generates, positive=True) if shape.assisted else None,
            update=exact(num * placement.trainer.update[width], positive=True),
            score=exact(_score(scorers, num, shape.dedicated)),
            switch=exact(placement.switch),
            commit=exact(placement.commit * shape.updates),
        ),
        servers=max(1, len(scorers)) if shape.dedicated else 0,
    )


def _score(scorers: Sequence[Device], num: int, dedicated: bool) -> float:
    """Of a whole micro-batch: by one reward process, or by all generators together."""
    known = [device.score for device in scorers if device.score]
    if not known:
        return 0.0
    return num * sum(known) / len(known) if dedicated else num / sum(1 / each for each in known)


def exact(seconds: float, *, positive: bool = False) -> float:
    """To a microsecond, as live estimates are; at least one where it may not be 0."""
    return max(round(seconds, 6), MICROSECOND if positive else 0.0)
