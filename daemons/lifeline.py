"""A child's tie to `digend up`: an inherited pipe whose end of file says that `up` is gone, so the child drains.

Owns the reading end, in a thread of its own, because it must work while the event loop is not there yet or stuck. Knows
nothing of what the process does: it asks it to stop, and ends it where it does not.
"""

import os
import signal
import threading

from digend.exitcodes import ExitCode

GRACE_S = 45.0
"""Longer than a worker's drain."""


def hold(lifeline: int, grace_s: float = GRACE_S) -> None:
    """SIGTERM to this process when the other end of `lifeline` closes, and the end of it `grace_s` later."""
    threading.Thread(target=_watch, args=(lifeline, grace_s), name="lifeline", daemon=True).start()


def _watch(lifeline: int, grace_s: float) -> None:
    while os.read(lifeline, 1):
        pass
    _silence()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_s)
    os._exit(ExitCode.ASKED_TO_STOP)


def _silence() -> None:
    """The log went through `up`: writing to it would break the pipe while draining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
