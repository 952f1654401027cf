"""What the trainer does at a free instant: UPDATE, TAG (trainer-assisted generation) or WAIT. Paper section 3.3.

A strategy that searches and does not know yet how long TAG takes answers PROBE: one sample of a micro-batch, whose rest
the generators make.

A strategy sees counts, never micro-batches: they are alike. Asked at every free instant with work pending or ready;
WAIT ends when UQ is next non-empty, so a skipped bubble is not asked about again.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from broker.schedule.snapshot import Model, Snapshot


class Answer(StrEnum):
    UPDATE = "update"
    TAG = "tag"
    PROBE = "probe"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """pending: micro-batches nobody has claimed; ready: in UQ; assisted: TAG so far in this step.

    stale: what is pending belongs to the next global step (TCSS), so that it would be made with an older version.

    alone: nobody generates or scores, so that nothing comes to UQ unless the trainer makes it. unmeasured: TAG was not
    measured twice yet; unsure: it was once, some steps ago, and no bubble has come since to measure it again. A
    strategy that searches needs `snapshot` and `model` (None: a time is not known yet).
    """

    pending: int
    ready: int
    in_flight: int
    assisted: int
    stale: bool = False
    alone: bool = False
    unmeasured: bool = False
    unsure: bool = False
    model: Model | None = None
    snapshot: Snapshot | None = None


class Strategy(Protocol):
    def decide(self, view: TrainerView) -> Answer:
        """TAG only where `view.pending`, UPDATE only where `view.ready`."""
        ...


@dataclass(frozen=True, slots=True)
class Never:
    def decide(self, view: TrainerView) -> Answer:
        return Answer.UPDATE if view.ready else Answer.WAIT


@dataclass(frozen=True, slots=True)
class Always:
    def decide(self, view: TrainerView) -> Answer:
        if view.ready:
            return Answer.UPDATE
        return Answer.TAG if view.pending else Answer.WAIT


@dataclass(frozen=True, slots=True)
class Static:
    """TAG `num` times in a row first, whatever UQ holds (fewer if pending runs out), then as `never`."""

    num: int

    def decide(self, view: TrainerView) -> Answer:
        if view.assisted < self.num and view.pending and not view.stale:
            return Answer.TAG
        return Never().decide(view)
