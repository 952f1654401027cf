"""What keeps a job or a worker from work because somebody asked for it: stops of jobs, drains. Values only."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A job is to leave its workers: paused or cancelled, after its running leases or at a border of global steps."""

    to: Literal["paused", "cancelled"]
    after: Literal["global-step", "micro-batch"]
    global_step: int
    """Of `global-step`: the first that is not begun any more."""
    by: str = ""
    why: str = ""
    drained: str = ""
    """Name of the drain that took its trainer: the job goes on when that ends."""

    @property
    def because(self) -> str:
        """` by alice: maintenance`, as far as it is known."""
        return because(self.by, self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`target`: a node, or one worker by its name."""

    target: str
    by: str
    why: str
    since_ns: int

    @property
    def because(self) -> str:
        return because(self.by, self.why)


def because(by: str, why: str) -> str:
    return (f" by {by}" if by else "") + (f": {why}" if why else "")
