"""A policy version that is sent to several workers at once: who they are, and which of them one is.

Words: the *members* of a broadcast are the trainer, which is rank 0 and sends, and the workers that it sends to.
Invariant: all members of one epoch were told the same but for `rank`.
"""

from dataclasses import dataclass
from typing import Literal

Transport = Literal["pull", "broadcast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """One member's place. `epoch` grows with each broadcast of a job; they meet at the version's `WeightsRef.store`."""

    epoch: int
    rank: int
    members: tuple[str, ...]
    """Names of workers, rank by rank."""
    timeout_s: float
    """It is over by then, counted from when a member was told; whoever does not have the version pulls it."""
