"""What one turn of the driver gathers before the core is stepped, and what is said after it is journalled."""

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.events import Event, Tick, WorkerBeat
from daemons.driver.journal import JobRow


@dataclass(slots=True)
class Draft:
    """Events in the order in which they came. `after` runs once all of it is on disk; `looks`, which only read, then
    or once it turns out that the disk has no room for it."""

    events: list[Event] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    persisted: dict[str, int] = field(default_factory=dict)
    after: list[Callable[[], None]] = field(default_factory=list)
    looks: list[Callable[[], None]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.events or self.persisted)

    def look(self) -> None:
        """Each of `looks`, once."""
        looks, self.looks = self.looks, []
        for reply in looks:
            reply()

    def add(self, event: Event) -> None:
        """Takes an event; a heartbeat replaces an earlier one of its session if nothing else came in between.

        While the driver is held nothing is stepped, and what repeats must not pile up.
        """
        if isinstance(event, Tick) and event in self.events:
            return
        last = self.events[-1] if self.events else None
        if isinstance(event, WorkerBeat) and isinstance(last, WorkerBeat) and last.session == event.session:
            self.events[-1] = event
            return
        self.events.append(event)
