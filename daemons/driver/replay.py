"""Replay: a fresh core is brought up to date from recorded batches, and may be held to the commands of then.

Owns nothing. Invariant: the same batches give the same commands, byte for byte; where they do not, the
batch is named.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.commands import Write
from broker.core import Core
from daemons.driver import packing
from daemons.driver.journal import Batch
from daemons.driver.summaries import Summaries


@dataclass(frozen=True, slots=True)
class Divergence:
    """A batch that was answered otherwise this time."""

    batch: Batch
    now: bytes

    def __str__(self) -> str:
        events = ", ".join(type(event).__name__ for event in self.batch.events)
        then, now = packing.named_fields(self.batch.commands), packing.named_fields(self.now)
        place = next((at for at, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), None)
        where = "" if place is None else f"; command {place}: {_difference(then[place], now[place])}"
        return (
            f"segment {self.batch.segment}, batch {self.batch.id} ({events}): "
            f"{len(then)} commands then, {len(now)} now{where}"
        )


def _difference(then: tuple[str, dict[str, object]], now: tuple[str, dict[str, object]]) -> str:
    """The first field that differs, or the types where they do."""
    if then[0] != now[0]:
        return f"{then[0]} then, {now[0]} now"
    names = [name for name in {**then[1], **now[1]} if then[1].get(name) != now[1].get(name)]
    name = names[0]
    return f"{then[0]}.{name} was {str(then[1].get(name))[:400]}, is {str(now[1].get(name))[:400]}"


def bring_up_to_date(core: Core, summaries: Summaries, batches: Iterable[Batch]) -> int:
    """Steps through the batches, whose commands were carried out long ago; returns how many there were."""
    count = 0
    for batch in batches:
        for command in core.step(batch.now_ns, batch.events):
            if isinstance(command, Write):
                summaries.add(command.record)
        count += 1
    return count


def verify(core: Core, batches: Iterable[Batch]) -> tuple[int, Divergence | None]:
    """As above, comparing commands; number of equal batches, and the first that differs."""
    count = 0
    for batch in batches:
        commands = packing.packed(core.step(batch.now_ns, batch.events))
        if not packing.equal(batch.commands, commands):
            return count, Divergence(batch, commands)
        count += 1
    return count, None
