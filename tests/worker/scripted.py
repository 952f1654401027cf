"""A driver that does what a test says, over a real socket, and worker processes to talk to it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from digend.net.server import ControlServer
from digend.wire.protocol import Refused
from digend.wire.tasks import TaskBody
from digend.wire.workers import Assign, Heartbeat, HeartbeatAck, Hello, Welcome

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
BEAT_S = 0.05


class ScriptedDriver:
    """Acknowledges heartbeats (unless told not to), keeps everything else for `expect`."""

    def __init__(self, server: ControlServer) -> None:
        self.server = server
        self.deaf = False
        self.beats: list[Heartbeat] = []
        self.peers: dict[str, bytes] = {}
        self._inbox: list[tuple[bytes, object]] = []
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read(), name="scripted driver")
        self._known: set[str] = set()

    async def _read(self) -> None:
        async for peer, message in self.server.messages():
            if isinstance(message, Heartbeat):
                self.beats.append(message)
                if message.session not in self._known:
                    self.server.send(peer, Refused(reason="unknown session"))
                elif not self.deaf:
                    self.server.send(peer, HeartbeatAck(session=message.session, seq=message.seq))
            else:
                self._inbox.append((peer, message))
            self._news.set()

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self.server.close(0)

    async def expect(self, kind: type[T], session: str | None = None) -> T:
        """The oldest message of this type (and session) that no earlier `expect` took."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for entry in self._inbox:
                    peer, message = entry
                    if isinstance(message, kind) and session in (None, getattr(message, "session", None)):
                        self._inbox.remove(entry)
                        if isinstance(message, Hello):
                            self.peers[message.name] = peer
                        return message
                self._news.clear()
                await self._news.wait()

    async def beat(self, session: str, lease: str | None, done: int = 0, seq: int = 0) -> Heartbeat:
        """The first heartbeat of a session about `lease` with at least `done`, numbered at least `seq`."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for message in self.beats:
                    if (
                        message.session == session
                        and message.lease == lease
                        and message.done >= done
                        and message.seq >= seq
                    ):
                        return message
                self._news.clear()
                await self._news.wait()

    def has(self, kind: type) -> bool:
        return any(isinstance(message, kind) for _, message in self._inbox)

    def send(self, name: str, message: object) -> None:
        assert self.server.send(self.peers[name], message)

    def welcome(self, name: str) -> str:
        session = f"s{uuid4().hex[:8]}"
        self._known.add(session)
        self.send(name, Welcome(session=session, epoch=1, heartbeat_s=BEAT_S))
        return session

    async def join(self, name: str) -> tuple[Hello, str]:
        """HELLO of a worker, answered; duplicates that were on their way are dropped."""
        hello = await self.expect(Hello)
        while hello.name != name:
            hello = await self.expect(Hello)
        return hello, self.welcome(name)

    def assign(self, name: str, session: str, lease: str, task: TaskBody) -> None:
        self.send(name, Assign(session=session, lease=lease, attempt=0, lease_s=60.0, task=task))


@asynccontextmanager
async def driver_at(address: str) -> AsyncIterator[ScriptedDriver]:
    driver = ScriptedDriver(await ControlServer.bind(address))
    try:
        yield driver
    finally:
        await driver.close()


class Cluster:
    """A node file in a folder of its own, and the worker processes that a test starts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = folder / "node.toml"
        self.node.write_text('name = "n"\naddress = "ipc://driver.sock"\nstate = "state"\n', encoding="utf-8")
        self.address = f"ipc://{folder}/driver.sock"
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(
        self, role: str, how: str = "fine", timing: dict[str, float] | None = None, slot: int = 0
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.worker.process",
            role,
            str(self.node),
            str(slot),
            json.dumps(timing or {}),
            how,
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self.processes.append(process)
        return process

    async def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Exit code and log of a process that should end by itself."""
    async with asyncio.timeout(TIMEOUT_S):
        _, log = await process.communicate()
    assert process.returncode is not None
    return process.returncode, log.decode()


def terminate(process: asyncio.subprocess.Process) -> None:
    os.kill(process.pid, signal.SIGTERM)
