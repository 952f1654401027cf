"""The recorder as a process on real sockets: killed again and again, it writes every record once."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from digend.exitcodes import ExitCode
from digend.net.blobs import BlobServer
from digend.net.server import ControlServer
from digend.wire.records import EvaluationRecord, Record
from digend.wire.tensors import from_numpy
from digend.wire.workers import Goodbye, Heartbeat, HeartbeatAck, Hello, Records, RecordsWritten, Welcome
from tests.recorder.plausible import JOB_TOML, PictureBook, plausible_run

JOB = "shapes-1"
CODE = """
import sys
from daemons.recorder.main import run
from digend.config.node import NodeConfig
sys.exit(run(NodeConfig.model_validate({"address": sys.argv[1], "runs": sys.argv[2]})))
"""


class Driver:
    """Sends one job's records, three batches ahead of what is written."""

    def __init__(self, server: ControlServer, records: Sequence[Record]) -> None:
        self._server = server
        self._records = records
        self.written = 0
        self.hellos: list[Hello] = []
        self.left = asyncio.Event()
        self.progress = asyncio.Event()

    async def serve(self) -> None:
        session, sent = "", 0
        async for peer, message in self._server.messages():
            if isinstance(message, Hello):
                self.hellos.append(message)
                session, sent = f"s{len(self.hellos)}", message.written.get(JOB, 0)
                self.written = sent
                self._server.send(peer, Welcome(session=session, epoch=1, heartbeat_s=0.2))
            elif isinstance(message, Heartbeat) and message.session == session:
                self._server.send(peer, HeartbeatAck(session=session, seq=message.seq))
            elif isinstance(message, RecordsWritten) and message.session == session:
                self.written = message.next_seq
            elif isinstance(message, Goodbye):
                self.left.set()
            self.progress.set()
            while session and sent < min(self.written + 24, len(self._records)):
                part = self._records[sent : sent + 8]
                configs = {JOB: JOB_TOML} if sent == 0 else {}
                self._server.send(peer, Records(session=session, records=tuple(part), configs=configs))
                sent += len(part)

    async def until(self, written: int, timeout_s: float = 120.0) -> None:
        async with asyncio.timeout(timeout_s):
            while self.written < written:
                self.progress.clear()
                await self.progress.wait()


def served(blobs: BlobServer, records: Sequence[Record]) -> list[Record]:
    """The same records with pictures that can really be pulled."""
    book, made = PictureBook(), []
    for record in records:
        body = record.body
        if isinstance(body, EvaluationRecord):
            groups = []
            for group in body.groups:
                names = [f"{group.prompt}/{index}/pixels" for index in range(len(group.rewards))]
                tensors = {name: from_numpy(film) for name, film in book.pull(group.blob, names, 1.0).items()}
                groups.append(replace(group, blob=blobs.put(tensors)))
            record = replace(record, body=replace(body, groups=tuple(groups)))
        made.append(record)
    return made


class Stage:
    """A driver, a blob server and recorder processes; everything ends with the `async with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[asyncio.subprocess.Process] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Stage":
        self._blobs = BlobServer.bind("ipc", "blobs", self.folder)
        self._server = await ControlServer.bind(f"ipc://{self.folder}/driver.sock")
        self._tasks.append(asyncio.create_task(self._blobs.serve()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        for task in self._tasks:
            task.cancel()
        self._server.close()
        self._blobs.close()

    def drive(self, records: Sequence[Record]) -> Driver:
        driver = Driver(self._server, served(self._blobs, records))
        self._tasks.append(asyncio.create_task(driver.serve()))
        return driver

    async def start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CODE,
            self._server.address,
            str(self.folder / "runs"),
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process


@pytest.mark.parametrize("seed", [1])
async def test_killed_at_random_no_line_is_lost_or_twice(tmp_path: Path, seed: int) -> None:
    records = plausible_run(num_steps=4, every=2, num_prompts=4)
    chance = random.Random(seed)
    async with Stage(tmp_path) as stage:
        driver = stage.drive(records)
        for share in (0.0, 0.3, 0.6):
            process = await stage.start()
            await driver.until(int(share * len(records)) + 1)
            await asyncio.sleep(chance.random() * 0.1)
            process.kill()
            await process.wait()
        process = await stage.start()
        await driver.until(len(records))
        os.kill(process.pid, signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == ExitCode.ASKED_TO_STOP
        await asyncio.wait_for(driver.left.wait(), 10)
    folder = tmp_path / "runs" / JOB
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(records)))
    metrics = [json.loads(line)["seq"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert metrics == sorted(set(metrics))
    assert len(metrics) == 4 + 3
    assert json.loads((folder / "summary.json").read_text())["num_records"] == len(records)
    assert (folder / "samples" / "before-after.png").exists()
    assert "pictures lost" not in (folder / "report.html").read_text()


async def test_two_recorders_on_one_folder(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        driver = stage.drive([])
        first = await stage.start()
        async with asyncio.timeout(120):
            while not driver.hellos:
                driver.progress.clear()
                await driver.progress.wait()
        second = await stage.start()
        assert await asyncio.wait_for(second.wait(), 120) == ExitCode.BAD_CONFIG
        os.kill(first.pid, signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), 60) == ExitCode.ASKED_TO_STOP
