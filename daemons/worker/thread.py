"""The one thread that engines compute on. Knows nothing of tasks.

Invariant: calls run one after another in the order they were made. The thread is a daemon thread, so that a wedged
engine cannot keep the process from ending.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class ComputeThread:
    """Give it blocking functions, await their results."""

    def __init__(self, name: str) -> None:
        self.busy = False
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Runs on the thread; raises what the function raised. Cancelling the await does not stop the function."""
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            self.busy = True
            try:
                result = context.run(function)
            except BaseException as error:
                self.busy = False
                future.set_exception(error)
            else:
                self.busy = False
                future.set_result(result)

        self._calls.put(run)
        return await asyncio.shield(asyncio.wrap_future(future))

    def _serve(self) -> None:
        while True:
            self._calls.get()()
