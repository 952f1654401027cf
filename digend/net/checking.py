"""Digests of pieces, checked while the next ones come.

Owns the threads. Invariant: when the block ends, by an error too, no check is waiting to be begun.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from digend.net.incoming import Incoming, Piece

INLINE_BYTES = 1024 * 1024
"""Fewer bytes than these are digested where they are; more go to threads, so that the loop goes on."""
_THREADS = min(4, os.cpu_count() or 1)


class Checks:
    """Of one pull."""

    def __init__(self, threads: Executor | None) -> None:
        self._threads = threads
        self._begun: list[Future[None]] = []

    def begin(self, incoming: Incoming, piece: Piece) -> "Future[None] | None":
        """Raises BlobCorrupt where it is done at once (None); else the future does."""
        if self._threads is None:
            incoming.check(piece)
            return None
        check = self._threads.submit(incoming.check, piece)
        self._begun.append(check)
        return check

    async def all_done(self) -> None:
        """Raises BlobCorrupt for the first that failed."""
        for check in self._begun:
            await asyncio.wrap_future(check)


@contextmanager
def checking(num_bytes: int) -> Iterator[Checks]:
    """For a blob of so many bytes."""
    if num_bytes < INLINE_BYTES:
        yield Checks(None)
        return
    threads = ThreadPoolExecutor(_THREADS, "digests")
    try:
        yield Checks(threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
