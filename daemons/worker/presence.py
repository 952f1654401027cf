"""What a service manager is told of a worker: when it is ready, and what it does, in words.

Ready means joined. Where no driver answers, a worker that could work is ready after `PATIENCE_S` all the same, because
waiting is all that it can do and a restart would not help. Must not change the worker.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from daemons.notify import Notifier
from daemons.worker.leases import Held
from daemons.worker.work import Progress

PATIENCE_S = 10.0
STATUS_S = 1.0


async def tell(notifier: Notifier, usable: asyncio.Event, joined: asyncio.Event, doing: Callable[[], str]) -> None:
    """For as long as the worker lives. `doing` is asked again and again."""
    notifier.status("starting the engine")
    await usable.wait()
    notifier.status(doing())
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await joined.wait()
    notifier.ready(doing())
    while True:
        await asyncio.sleep(STATUS_S)
        notifier.status(doing())


def in_words(joined: bool, draining: bool, running: Held | None, progress: Progress) -> str:
    """`generate for shapes-001, 3 of 20`, or what it waits for."""
    if running is None:
        doing = "idle" if joined else "waiting for the driver"
    else:
        doing = f"{running.task.kind} for {running.task.job}"
        doing += f", {progress.done} of {progress.total}" if progress.total else ""
        doing += "" if joined else " (no driver)"
    return f"draining: {doing}" if draining else doing
