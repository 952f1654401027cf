"""The simulated driver's own parts: its journal of batches, whether it is up, and replay.

Must not know workers. Invariant: a batch is in the journal before any of its commands is carried out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from broker.commands import Command
from broker.core import Core
from broker.events import Event
from broker.state import SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step of the core."""

    now_ns: int
    events: tuple[Event, ...]
    commands: tuple[Command, ...]


@dataclass(slots=True)
class DriverLife:
    """`dies_next`: it is killed once its next step is journalled, before that step's commands are sent."""

    epoch: int = 0
    up: bool = False
    down_ns: int = SECOND
    dies_next: bool = False


def replay(core: Core, batches: Sequence[Batch]) -> int | None:
    """Step a core through a journal; the first batch that it answers otherwise, None where there is none."""
    for at, batch in enumerate(batches):
        if tuple(core.step(batch.now_ns, batch.events)) != batch.commands:
            return at
    return None
