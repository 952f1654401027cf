"""The processes a node file names, each started again when it dies of something a restart may mend.

Owns child processes and their log lines. Must not know what the programs do. Invariant: a child that ended with 42
(asked to stop) or 78 (its configuration is wrong) stays down; every other end is followed by a start after a back-off.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from daemons.backoff import Backoff
from digend.config.layers import Places
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger

log = logger()

FINAL_CODES = (ExitCode.ASKED_TO_STOP, ExitCode.BAD_CONFIG)
WORKER_ROLES = ("generator", "trainer", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process of a node. `name` is role, or role-slot where there may be several."""

    role: str
    slot: int | None = None

    @property
    def name(self) -> str:
        return self.role if self.slot is None else f"{self.role}-{self.slot}"

    def worker_name(self, node: str) -> str:
        """Its name in the cluster, as HELLO says it."""
        return f"{node}/{self.role}/{self.slot or 0}"

    def command(self, places: Places, lifeline: int) -> list[str]:
        """The process that reads the settings in the same places."""
        slot = [] if self.slot is None else ["--slot", str(self.slot)]
        options = [*places.options(), "--lifeline", str(lifeline), *slot]
        return [sys.executable, "-m", "daemons.main", self.role, *options]


def programs(node: NodeConfig) -> list[Program]:
    """What a node file names, in the order of starting; stopping goes the other way round."""
    found = [Program(role="driver")] if node.driver else []
    found += [Program(role="recorder")] if node.recorder else []
    for role, section in (("trainer", node.trainer), ("generator", node.generator), ("reward", node.reward)):
        found += [Program(role=role, slot=slot) for slot in range(section.slots if section else 0)]
    return found


class Child:
    """One program's process, over and over."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        lifeline: int,
        write_line: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._lifeline = lifeline
        self._write_line = write_line
        self._backoff = backoff or Backoff()
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The newest process's, if there was one."""
        return self._process.pid if self._process else None

    async def run(self) -> int:
        """Until it is stopped or ends with a final code; returns the last exit code (negative: a signal)."""
        clock = asyncio.get_running_loop().time
        while True:
            begun = clock()
            code = await self._live()
            if self._stop.is_set() or code in FINAL_CODES:
                log.info("ended", program=self.name, code=code)
                return code
            delay_s = self._backoff.delay(clock() - begun)
            log.warning("died, starting again", program=self.name, code=code, in_s=delay_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stop.wait()
                return code

    def stop(self) -> None:
        """SIGTERM now, and no start after it."""
        self._stop.set()
        self._signal(signal.SIGTERM)

    def reload(self) -> None:
        """SIGHUP: it reads its settings again."""
        self._signal(signal.SIGHUP)

    def kill(self) -> None:
        """SIGKILL to it and to what it started."""
        self._stop.set()
        self._signal(signal.SIGKILL, os.killpg)

    def _signal(self, number: signal.Signals, send: Callable[[int, int], None] = os.kill) -> None:
        """By pid: asyncio's own `send_signal` polls first, and a child that ends just then is reaped there, so that the
        watcher finds nobody and says 255 for its exit code (cpython gh-127049)."""
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                send(self._process.pid, number)

    async def _live(self) -> int:
        """One process from start to end. Its output comes through a pipe of ours, so that an end is seen even where a
        grandchild still holds the other side."""
        reading, writing = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(self._lifeline,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            log.error("cannot be started", program=self.name, error=str(error))
            return ExitCode.TARGET_FAILED
        finally:
            os.close(writing)
        if self._stop.is_set():
            self._signal(signal.SIGTERM)
        copying = asyncio.create_task(copy_lines(reading, self._write_line), name=f"log of {self.name}")
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await copying
        return code


async def copy_lines(reading: int, write_line: Callable[[str], None]) -> None:
    """Every line of a pipe, however long, until its other end is closed. Closes `reading`."""
    stream = asyncio.StreamReader()
    source = os.fdopen(reading, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), source
    )
    rest = b""
    try:
        while chunk := await stream.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                write_line(line.decode("utf-8", "replace"))
        if rest:
            write_line(rest.decode("utf-8", "replace"))
    finally:
        transport.close()
