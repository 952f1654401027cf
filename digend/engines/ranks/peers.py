"""What the ranks of a trainer tell each other, and the one that has nobody to tell.

Words: the *peers* are all ranks, as one of them sees them. Invariant: an error that one rank raises inside `agreed` is
raised by all of them, so none goes on alone. Every method is called by all ranks in the same order.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor


class Peers(Protocol):
    """The other ranks, and this one's place among them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def shards(self) -> int:
        """How many ranks share one copy of the weights."""
        ...

    def agreed(self, *, patient: bool = False) -> AbstractContextManager[None]:
        """What the body raises on one rank is raised on all. `patient`: bodies may take very unequal times."""
        ...

    def add_up(self, table: Tensor) -> Tensor:
        """The sum of every rank's CPU tensor, in place."""
        ...

    def share(self, data: bytes) -> bytes:
        """Rank 0's bytes, on every rank."""
        ...

    def collect(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, in the order of ranks, on rank 0; nothing on the others."""
        ...


class Alone:
    """One rank: nothing to agree on, nothing to exchange."""

    rank = 0
    size = 1
    shards = 1

    def agreed(self, *, patient: bool = False) -> AbstractContextManager[None]:
        return nullcontext()

    def add_up(self, table: Tensor) -> Tensor:
        return table

    def share(self, data: bytes) -> bytes:
        return data

    def collect(self, data: bytes) -> list[bytes]:
        return [data]
