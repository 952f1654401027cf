"""A trainer of several processes: which of them one is, and where they meet.

Words: a *rank* is one process of a trainer, *ranks* all of them; rank 0 has the trainer's session, its lease and its
blobs, the others do what it does. Invariant: all ranks of one epoch were told the same but for `rank`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One rank's place among `size` of them. `epoch` grows each time they are formed anew."""

    epoch: int
    rank: int
    size: int
    replicas: int
    """Copies of sharded weights, each over size / replicas ranks."""
    store: str
    """host:port at which rank 0 keeps the store in which ranks find each other."""
    timeout_s: float
    """After so long without an answer of another rank the ranks are given up."""
