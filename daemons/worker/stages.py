"""Seconds of a task by stage, on this machine's monotonic clock. Knows nothing of tasks.

Invariant: stages are exclusive. A stage entered inside another one stops the outer one's clock, so that the sum of all
stages never exceeds the total.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from digend.wire.tasks import Receipt


class Stages:
    """The clock of one task; used from the thread that works on it."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._begun = self._mark = clock()
        self._open: list[str] = []
        self._spent: dict[str, int] = {}

    def enter(self, name: str) -> None:
        self._book()
        self._open.append(name)

    def leave(self) -> None:
        self._book()
        self._open.pop()

    def receipt(self, num_samples: int = 0, flops: float = 0.0) -> Receipt:
        """Total since construction, and every stage in the order of its first use."""
        self._book()
        stages = tuple(self._spent.items())
        return Receipt(total_ns=self._mark - self._begun, stages=stages, num_samples=num_samples, flops=flops)

    def _book(self) -> None:
        now = self._clock()
        if self._open:
            stage = self._open[-1]
            self._spent[stage] = self._spent.get(stage, 0) + now - self._mark
        self._mark = now


@dataclass(frozen=True, slots=True)
class StageTimer:
    """`with` adds to a stage."""

    stages: Stages
    name: str

    def __enter__(self) -> None:
        self.stages.enter(self.name)

    def __exit__(self, *exc: object) -> None:
        self.stages.leave()
