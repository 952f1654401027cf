"""Where a trainer's weights lie, and how its gradient comes together: on one rank, the same on all, or in shards.

Owns what differs between the three; who trains, saves or publishes asks here and knows no ranks. A *shard* is one
rank's part of a tensor, by torch's FSDP2; *replicas* are copies of all shards.

Invariants: after `end_passes` every rank has the sum over ranks of its part of the gradient, once. `whole`, `fill` and
`place` are called by all ranks in the same order of names. Only rank 0 gets values, and it alone gives them, but where
weights are in shards and a stored tensor is there for everybody: then each rank reads its rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from torch import Tensor
from torch.nn import Parameter

from digend.engines.forwards import Forward
from digend.engines.protocols import Context
from digend.engines.ranks.dealing import ExpertOf
from digend.engines.ranks.peers import Alone, Peers
from digend.engines.stored import Part, Stored


class Layout(Protocol):
    """One rank's view of where the weights are."""

    @property
    def peers(self) -> Peers: ...

    @property
    def generates_together(self) -> bool:
        """Whether a forward pass needs all ranks."""
        ...

    def deal(self, planned: Sequence[Forward], largest: int, expert_of: ExpertOf) -> tuple[Forward, ...]:
        """This rank's passes of those planned for one rank. `expert_of`: the module that a pair goes through."""
        ...

    def begin_pass(self, *, last: bool) -> None:
        """`last`: of its expert's, in a micro-batch."""
        ...

    def end_passes(self, parameters: Iterable[Parameter], context: Context) -> None: ...

    def begin_step(self) -> None:
        """Before the weights change."""
        ...

    def give_up(self, once: Iterable[Callable[[], object]]) -> None:
        """The passes so far are dropped; each of `once` runs a pass of which nothing remains, one an expert."""
        ...

    def whole(self, tensors: Mapping[str, Tensor], context: Context) -> dict[str, Tensor]:
        """Of every rank's part, on the CPU; nothing on ranks other than 0."""
        ...

    def part(self, tensors: Mapping[str, Tensor]) -> Part:
        """This rank's shards, on the CPU; what is whole on all is in rank 0's."""
        ...

    def fill(self, target: Tensor, source: Stored) -> None:
        """`source` becomes the value of `target`, on every rank its part."""
        ...

    def place(self, source: Stored, like: Tensor) -> Tensor:
        """A new tensor with `source` as its value, where `like` is."""
        ...


class OneRank:
    """Everything is here."""

    generates_together = False

    def __init__(self) -> None:
        self.peers: Peers = Alone()

    def deal(self, planned: Sequence[Forward], largest: int, expert_of: ExpertOf) -> tuple[Forward, ...]:
        return tuple(planned)

    def begin_pass(self, *, last: bool) -> None:
        return None

    def end_passes(self, parameters: Iterable[Parameter], context: Context) -> None:
        return None

    def begin_step(self) -> None:
        return None

    def give_up(self, once: Iterable[Callable[[], object]]) -> None:
        return None

    def whole(self, tensors: Mapping[str, Tensor], context: Context) -> dict[str, Tensor]:
        return {name: each.detach().cpu().contiguous() for name, each in tensors.items()}

    def part(self, tensors: Mapping[str, Tensor]) -> Part:
        return Part({name: each.detach().cpu().contiguous() for name, each in tensors.items()})

    def fill(self, target: Tensor, source: Stored) -> None:
        target.copy_(source.whole())

    def place(self, source: Stored, like: Tensor) -> Tensor:
        return source.whole().to(like.device)
