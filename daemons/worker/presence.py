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
from digend.telemetry.logs import logger

log = logger()

PATIENCE_S = 10.0
STATUS_S = 1.0


async def tell(
    notifier: Notifier,
    usable: asyncio.Event,
    joined: asyncio.Event,
    doing: Callable[[], str],
    trouble: Callable[[], str] = lambda: "",
) -> None:
    """For as long as the worker lives. `doing` is asked again and again, and so is `trouble`: why the driver does not
    let it in, which is logged too, each reason once until it is gone."""
    notifier.status("starting the engine")
    await usable.wait()
    told, patient_until = "", asyncio.get_running_loop().time() + PATIENCE_S
    ready = False
    while True:
        why = trouble()
        if why and why != told:
            log.warning("the driver does not let this process in", reason=why)
        told = why
        words = f"{doing()}: {why}" if why else doing()
        if not ready and (joined.is_set() or asyncio.get_running_loop().time() >= patient_until):
            ready = True
            notifier.ready(words)
        notifier.status(words)
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_S):
                # Who started the worker waits until it joins for the first time.
                await (asyncio.Event() if ready else joined).wait()


def in_words(joined: bool, draining: bool, running: Held | None, progress: Progress, rank: str = "") -> str:
    """`generate for shapes-001, 3 of 20`, or what it waits for. `rank`: what a trainer is among several."""
    if running is None:
        doing = rank or ("idle" if joined else "waiting for the driver")
    else:
        doing = f"{running.task.kind} for {running.task.job}"
        doing += f", {progress.done} of {progress.total}" if progress.total else ""
        doing += "" if joined else " (no driver)"
    return f"draining: {doing}" if draining else doing
