"""What a search knows when the trainer is free: counts and remaining times, relative to that instant.

Micro-batches are alike, so a situation is a few counts (the paper's compressed state, section 4). Knows nothing of
workers' names, of jobs or of how it came to be.
"""

from dataclasses import dataclass

from broker.schedule.times import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`servers` reward processes score; 0: scoring is colocated, the generator scores. No matter where score = 0."""

    times: Times
    servers: int = 0

    def __post_init__(self) -> None:
        if self.servers < 0:
            raise ValueError(f"servers = {self.servers}: must be at least 0")


@dataclass(frozen=True, slots=True)
class Running:
    """A task of the generator or of a reward server: done in `left` ticks (at least 1, at most its whole length).

    `later`: for the next global step.
    """

    left: int
    scoring: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The dispatch of this instant to reward and generator is done; the trainer is to be told what to do.

    pending: micro-batches of the open global step that nobody has claimed; queued: its micro-batches in SQ; ready: in
    UQ; generating: the trainer's mode; stale: micro-batches of the next global step that may still be claimed;
    later: those of them in SQ. commits: where one rollout feeds several global steps, all of which count as the
    open one here: after how many updates from now the trainer commits, once for each that is not the last.
    """

    pending: int
    queued: int = 0
    ready: int = 0
    generator: Running | None = None
    servers: tuple[Running, ...] = ()
    generating: bool = False
    stale: int = 0
    later: int = 0
    commits: tuple[int, ...] = ()

    @property
    def remaining(self) -> int:
        """Updates of the open global step still to be done."""
        tasks = [*self.servers, self.generator]
        flight = sum(task is not None and not task.later for task in tasks)
        return self.pending + self.queued + self.ready + flight
