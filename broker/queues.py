"""Scoring queue (SQ) and update queue (UQ): priority queues. Older policy version first, then step, then arrival."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")
Priority = tuple[int, int, int]
"""(policy version, global step, arrival)"""


@dataclass(order=True, slots=True)
class _Entry(Generic[Item]):
    priority: Priority
    item: Item = field(compare=False)
    since_ns: int = field(compare=False)


@dataclass(slots=True)
class Queue(Generic[Item]):
    """A stable priority queue that knows since when each item waits."""

    _entries: list[_Entry[Item]] = field(default_factory=list)
    _arrivals: int = 0

    def push(self, item: Item, version: int, global_step: int, now: int, place: int | None = None) -> None:
        """`place` replaces the arrival (deterministic mode: the micro-batch's index)."""
        arrival = self._arrivals if place is None else place
        self._arrivals += 1
        heappush(self._entries, _Entry((version, global_step, arrival), item, now))

    def peek(self) -> Item | None:
        return self._entries[0].item if self._entries else None

    def pop(self) -> Item:
        return heappop(self._entries).item

    def remove(self, item: Item) -> None:
        """Drop an item wherever it stands; nothing happens where it is not."""
        self._entries = [entry for entry in self._entries if entry.item is not item]
        heapify(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def waiting(self) -> list[tuple[Item, int]]:
        """(item, waiting since), in order of service."""
        return [(entry.item, entry.since_ns) for entry in sorted(self._entries)]

    def __len__(self) -> int:
        return len(self._entries)
