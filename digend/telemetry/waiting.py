"""What a process waits for outside digend, such as a service that is not up yet: said by whoever waits, read by whoever
tells the driver.

Owns the words that are current. Knows neither who waits nor who asks. Invariant: nothing is said once the wait is over.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

MAX_CHARS = 200


class Wait:
    """One wait with a time limit. `for_what` may be renewed while it lasts."""

    def __init__(self, for_what: str, limit_s: float) -> None:
        self.for_what = for_what
        self._begun_s, self._limit_s = time.monotonic(), limit_s

    def __str__(self) -> str:
        waited_s = min(time.monotonic() - self._begun_s, self._limit_s)
        return f"waits for {self.for_what[:MAX_CHARS]}, {waited_s:.0f} of {self._limit_s:g} s"


_current: list[Wait] = []
"""Of this process, which works for one job at a time."""


@contextmanager
def waiting(for_what: str, limit_s: float) -> Iterator[Wait]:
    wait = Wait(for_what, limit_s)
    _current.append(wait)
    try:
        yield wait
    finally:
        _current.remove(wait)


def waits_for() -> str:
    """`waits for http://127.0.0.1:8951 (connection refused), 12 of 30 s`; "" where nothing is waited for."""
    return "; ".join(str(wait) for wait in tuple(_current))
