"""What a node file names, and one child."""

import asyncio
import os
import sys
from contextlib import suppress
from time import monotonic

from daemons.backoff import Backoff
from daemons.children import Child, copy_lines, programs
from digend.config.node import NodeConfig


def test_programs_in_the_order_of_starting() -> None:
    node = NodeConfig.model_validate(
        {"driver": {}, "recorder": True, "trainer": {}, "generator": {"slots": 2}, "reward": {"slots": 1}}
    )
    names = [program.name for program in programs(node)]
    assert names == ["driver", "recorder", "trainer-0", "generator-0", "generator-1", "reward-0"]
    assert programs(node)[4].worker_name("box") == "box/generator/1"
    assert programs(NodeConfig.model_validate({})) == []


async def test_back_off_grows_between_lives() -> None:
    """Three deaths within 0.05 + 0.1 s; the third wait of 60 s is cut short by stop."""
    deaths: list[float] = []
    reading, writing = os.pipe()
    child = Child(
        "c",
        [sys.executable, "-S", "-c", "print('x'); raise SystemExit(3)"],
        lifeline=reading,
        write_line=lambda line: deaths.append(monotonic()),
        backoff=Backoff(first_s=0.3, last_s=60.0),
    )
    running = asyncio.create_task(child.run())
    async with asyncio.timeout(60):
        while len(deaths) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert deaths[1] - deaths[0] >= 0.3
    assert deaths[2] - deaths[1] >= 0.6
    child.stop()
    async with asyncio.timeout(5):
        assert await running == 3
    os.close(reading)
    os.close(writing)


def until_it_ends(pid: int) -> None:
    """Without letting the loop run, and leaves it to be reaped. Asks without a pause, so as to be the first to know."""
    with suppress(ChildProcessError):
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            pass


async def test_the_exit_code_of_a_child_that_ends_while_it_is_asked_to() -> None:
    """asyncio's own `send_signal` would reap it, and say 255."""
    reading, writing = os.pipe()
    for _ in range(20):
        child = Child("c", ["/bin/sh", "-c", "exit 42"], lifeline=reading, write_line=print)
        running = asyncio.create_task(child.run())
        while not child.pid:  # noqa: ASYNC110
            await asyncio.sleep(0)
        until_it_ends(child.pid)
        child.stop()
        async with asyncio.timeout(5):
            assert await running == 42
    os.close(reading)
    os.close(writing)


async def test_a_program_that_cannot_be_started_is_tried_again() -> None:
    reading, writing = os.pipe()
    child = Child("c", ["/no/such/program"], lifeline=reading, write_line=print, backoff=Backoff(first_s=0.01))
    running = asyncio.create_task(child.run())
    await asyncio.sleep(0.2)
    assert not running.done()
    child.stop()
    async with asyncio.timeout(5):
        assert await running == 1
    os.close(reading)
    os.close(writing)


async def test_lines_of_any_length_and_without_an_end() -> None:
    reading, writing = os.pipe()
    lines: list[str] = []
    copying = asyncio.create_task(copy_lines(reading, lines.append))
    await asyncio.to_thread(os.write, writing, b"short\n")
    await asyncio.to_thread(os.write, writing, b"x" * 60_000)
    await asyncio.to_thread(os.write, writing, b"y" * 60_000 + b"\nlast \xff")
    os.close(writing)
    await copying
    assert lines == ["short", "x" * 60_000 + "y" * 60_000, "last \ufffd"]
