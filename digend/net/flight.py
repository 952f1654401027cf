"""Bytes a peer has not taken yet. ZeroMQ's own limit counts messages, which may be 100 bytes or 256 KiB.

Invariant: `num_bytes` never falls short of what waits in this process; what the kernel's buffer holds is not
counted.
"""

from collections import deque
from typing import Protocol


class Tracker(Protocol):
    """zmq.MessageTracker: done once ZeroMQ has let go of the message's memory."""

    @property
    def done(self) -> bool: ...


class InFlight:
    """What was sent to one peer, in order."""

    def __init__(self) -> None:
        self._messages: deque[tuple[Tracker, int]] = deque()
        self._num_bytes = 0

    def add(self, tracker: Tracker, num_bytes: int) -> None:
        self._messages.append((tracker, num_bytes))
        self._num_bytes += num_bytes

    def num_bytes(self) -> int:
        while self._messages and self._messages[0][0].done:
            self._num_bytes -= self._messages.popleft()[1]
        return self._num_bytes
