"""A tracker that may fail or hang without the run noticing: it works on a thread of its own.

Owns that thread and its queue. Invariants: no method waits for the tracker (but `close`, for a bounded time) or raises
what it raises; after its first failure it is given nothing more, and `trouble` says why.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from daemons.trackers.protocol import TrackedRun, Tracker
from digend.telemetry.logs import logger
from digend.wire.records import Record

MAX_WAITING = 1000
"""Calls that wait for a slow tracker; one more is a failure, or memory would grow with the run."""

log = logger()


class Aside:
    """The same methods as what is inside."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name = name
        self._tracker = tracker
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()
        self.trouble = ""

    def start(self, run: TrackedRun, past: Sequence[Record]) -> None:
        self._later(lambda: self._tracker.start(run, past))

    def log(self, records: Sequence[Record]) -> None:
        self._later(lambda: self._tracker.log(records))

    def image(self, name: str, path: Path, record: Record) -> None:
        self._later(lambda: self._tracker.image(name, path, record))

    def finish(self, state: str) -> None:
        self._later(lambda: self._tracker.finish(state))
        self._later(None)

    def close(self, seconds: float) -> None:
        """No more will come; waits at most so long for what is under way."""
        self._later(None)
        self._thread.join(seconds)

    def _later(self, call: Callable[[], None] | None) -> None:
        if self.trouble:
            return
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self._fail(f"it is {MAX_WAITING} calls behind")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # whatever somebody else's library does, SystemExit too
                self._fail(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            if self.trouble:
                return

    def _fail(self, why: str) -> None:
        if not self.trouble:
            self.trouble = " ".join(why.split())[:300]
            log.error("a tracker failed, the run goes on without it", tracker=self._name, reason=self.trouble)
