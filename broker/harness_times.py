"""How long simulated tasks take: integer nanoseconds, exact and without chance (docs/scheduling.md: g, h, t, s, c, y).

Knows nothing of workers or queues: a task and the part of a micro-batch that it is go in, a duration comes out.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from digend.wire.tasks import TaskBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of a micro-batch a task is (`share` of its samples), on a worker with `speed` of its pool's speed.

    A worker alone in its pool has speed 1. An evaluation's micro-batch is one prompt with all its samples.
    """

    share: Fraction = Fraction(1)
    speed: Fraction = Fraction(1)


class Durations(Protocol):
    """What a simulation asks. An implementation with noise must draw it from the task, or from a seed of its own."""

    def task_ns(self, task: TaskBody, load: Load) -> int: ...

    def switch_ns(self) -> int:
        """c: added to a trainer's task that follows one of the other mode (training, generating)."""
        ...

    def stage_ns(self) -> int:
        """From being told of a policy version to having it staged."""
        ...

    def scores_at_once(self) -> bool:
        """Scoring takes no time: samples come with their scores, and no score task is needed (s = 0)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Nanoseconds. Per micro-batch of full size: `generate` by the whole pool (g), `assist` by the trainer (h, default
    g), `update` (t), `score` by the whole pool or by one reward process (s), `evaluate` one prompt by the whole pool.

    `commit` is the optimizer step with publishing (y), `switch` is c. A fragment takes its share of these, divided by
    its worker's share of the pool's speed, rounded down to a nanosecond. What the model of docs/scheduling.md does not
    know (prepare, encode, evaluate, checkpoint, reset, stage) takes no time unless it is given one.
    """

    generate: int
    update: int
    assist: int | None = None
    score: int = 0
    commit: int = 0
    switch: int = 0
    prepare: int = 0
    encode: int = 0
    evaluate: int = 0
    checkpoint: int = 0
    reset: int = 0
    stage: int = 0

    def task_ns(self, task: TaskBody, load: Load) -> int:
        whole: int
        if task.kind == "generate":
            if task.assist:
                return int((self.generate if self.assist is None else self.assist) * load.share)
            whole = self.evaluate if task.purpose == "evaluate" else self.generate
        elif task.kind == "score":
            whole = 0 if task.purpose == "evaluate" else self.score
        else:
            return int(getattr(self, task.kind))
        return int(whole * load.share / load.speed)

    def switch_ns(self) -> int:
        return self.switch

    def stage_ns(self) -> int:
        return self.stage

    def scores_at_once(self) -> bool:
        return self.score == 0
