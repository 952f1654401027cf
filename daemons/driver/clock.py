"""The driver's `now`: nanoseconds, anchored on the wall clock at start, counted by the monotonic clock after.

Invariant: it never decreases, across restarts too, whatever the wall clock does. It stands still while
the driver is held (journal full), so that no lease ends and no worker is lost over time in which nothing
could be decided.
"""

import time
from collections.abc import Callable


class Clock:
    """`last_ns` is the newest journalled `now`."""

    def __init__(
        self,
        last_ns: int,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic = monotonic
        self._base = max(last_ns, wall())
        self._since = monotonic()
        self._held = False

    def now_ns(self) -> int:
        if self._held:
            return self._base
        return self._base + max(0, self._monotonic() - self._since)

    def hold(self) -> None:
        self._base = self.now_ns()
        self._held = True

    def resume(self) -> None:
        if self._held:
            self._since = self._monotonic()
            self._held = False
