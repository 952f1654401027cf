"""Credits: bounded, first come first served, nothing lost when a task is cancelled."""

import asyncio
import random

import pytest

from digend.net.credits import Credits


async def _turn() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_taken_never_passes_the_total() -> None:
    rng = random.Random(1)
    credits = Credits(10)
    most = 0

    async def work(amount: int) -> None:
        nonlocal most
        await credits.take(amount)
        most = max(most, credits.taken)
        await asyncio.sleep(0)
        credits.give(amount)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(work(rng.randint(1, 10)))
    assert 5 < most <= 10
    assert credits.taken == 0


async def test_nobody_overtakes_who_waits_for_more() -> None:
    credits = Credits(10)
    order: list[str] = []

    async def work(name: str, amount: int) -> None:
        await credits.take(amount)
        order.append(name)

    await credits.take(6)
    tasks = [asyncio.create_task(work("large", 8)), asyncio.create_task(work("small", 1))]
    await _turn()
    assert order == []
    credits.give(6)
    await _turn()
    assert order == ["large", "small"]
    for task in tasks:
        await task


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_task_takes_nothing(granted: bool) -> None:
    credits = Credits(4)
    await credits.take(4)
    waiting = asyncio.create_task(credits.take(3))
    await _turn()
    if granted:
        credits.give(4)  # its turn has come, but it has not run since
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not granted:
        credits.give(4)
    assert credits.taken == 0
    await credits.take(4)
