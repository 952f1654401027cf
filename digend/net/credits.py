"""A bounded amount that tasks take and give back, first come, first served.

Invariant: taken and free add up to the total; nobody overtakes a task that waits for more than is free.
"""

import asyncio
from collections import deque


class Credits:
    """One event loop only."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        return self._total - self._free

    async def take(self, amount: int) -> None:
        """Waits until `amount` (at most the total) is free. Cancelled: nothing was taken."""
        if not self._waiting and amount <= self._free:
            self._free -= amount
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(amount)
            raise

    def give(self, amount: int) -> None:
        self._free += amount
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)
