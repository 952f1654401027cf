"""What driver tests share: a node in a folder, a driver running in the test's loop, a client, a small job."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from daemons.driver.journal import Journal
from daemons.driver.main import assemble
from daemons.driver.shell import Driver
from digend import __version__
from digend.config.job import JobConfig
from digend.config.node import NodeConfig
from digend.config.prompts import PromptRow, content_digest, packed_prompts
from digend.net.link import Link
from digend.net.server import ControlServer
from digend.wire.replies import JobReply, Submitted, Uploaded
from digend.wire.requests import ShowJob, Submit, Upload
from digend.wire.verbs import TO_CLIENT
from digend.wire.workers import Hello, Role, Versions

T = TypeVar("T")
PROMPTS = (PromptRow("a red circle"), PromptRow("a green square", {"shape": "square"}))


def node_of(folder: Path, **timing: float) -> NodeConfig:
    """A driver's node with everything below `folder`, and quick timing."""
    return NodeConfig.model_validate(
        {
            "address": f"ipc://{folder}/d.sock",
            "state": str(folder / "state"),
            "runs": str(folder / "runs"),
            "driver": {},
            "timing": {"heartbeat_s": 0.05, "torpid_s": 2.0, "lost_s": 5.0, "rejoin_s": 1.0, **timing},
        }
    )


def journal_path(node: NodeConfig) -> Path:
    return Path(node.state) / "driver.sqlite"


def job_config(**changes: dict[str, object]) -> JobConfig:
    """A job of 3 global steps; keywords change keys of a table."""
    tables: dict[str, Any] = {
        "model": {"family": "flux", "path": "/nowhere"},
        "sampling": {"height": 16, "width": 16, "num_timesteps": 4},
        "algorithm": {"options": {"window_size": 2, "window_range": [0, 2]}},
        "data": {"prompts": "p.txt", "prompts_per_rollout": 2, "samples_per_prompt": 4},
        "schedule": {"strategy": "never"},
        "training": {"global_steps": 3},
        "eval": {"samples": 2, "during_samples": 2, "every": 2},
        "checkpoint": {"every": 2},
    }
    for table, keys in changes.items():
        tables[table] = {**tables.get(table, {}), **keys}
    return JobConfig.model_validate({"name": "job", "rewards": [{"name": "jpeg_compressibility"}], **tables})


@dataclass
class Running:
    """A driver at work; `stop` ends it as SIGTERM would."""

    driver: Driver
    journal: Journal
    stop: asyncio.Event
    task: asyncio.Task[None]


@asynccontextmanager
async def running(node: NodeConfig) -> AsyncIterator[Running]:
    """The driver as its process assembles it, in this loop."""
    server = await ControlServer.bind(node.address)
    try:
        journal = Journal(journal_path(node))
        try:
            driver = assemble(node, server, journal)
            stop = asyncio.Event()
            task = asyncio.create_task(driver.run(stop))
            yield Running(driver, journal, stop, task)
            stop.set()
            await task
        finally:
            journal.close()
    finally:
        server.close()


class Client:
    """A client on the test's loop: one request, one reply."""

    def __init__(self, address: str) -> None:
        self.link = Link.connect(address, allowed=TO_CLIENT)
        self._messages = self.link.messages()
        self._count = itertools.count()

    def next_request(self) -> str:
        return f"r{next(self._count)}"

    async def ask(self, message: Any, expect: type[T]) -> T:
        """Sends and waits for the reply, which must be of type `expect`."""
        async with asyncio.timeout(60):
            await self.link.connected()
            assert self.link.send(message)
            reply = await anext(self._messages)
        assert isinstance(reply, expect), reply
        assert getattr(reply, "request", message.request) == message.request
        return reply

    async def upload(self, content: bytes) -> str:
        digest = content_digest(content)
        chunk = Upload(request=self.next_request(), digest=digest, offset=0, size=len(content), data=content)
        assert (await self.ask(chunk, Uploaded)).complete
        return digest

    async def submission(self, config: JobConfig, job: str | None = None) -> Submit:
        """Uploads the prompts and makes the request."""
        prompts = await self.upload(packed_prompts(PROMPTS))
        return Submit(
            request=self.next_request(),
            config=config.model_dump_json(),
            toml=f"name = '{config.name}'\n",
            prompts=prompts,
            eval_prompts=None,
            job=job,
        )

    async def submit(self, config: JobConfig, job: str | None = None) -> Submitted:
        return await self.ask(await self.submission(config, job), Submitted)

    async def completed(self, job: str) -> JobReply:
        """What the driver tells of a job once it is completed; fails where it ended otherwise, or after 40 s."""
        async with asyncio.timeout(40):
            while True:
                reply = await self.ask(ShowJob(request=self.next_request(), job=job), JobReply)
                if reply.job.job.state in ("completed", "failed", "cancelled"):
                    assert reply.job.job.state == "completed", reply.job.job.reason
                    return reply
                await asyncio.sleep(0.02)

    def close(self) -> None:
        self.link.close()


@asynccontextmanager
async def client_of(node: NodeConfig) -> AsyncIterator[Client]:
    client = Client(node.address)
    try:
        yield client
    finally:
        client.close()


def hello_of(role: Role, name: str, instance: str = "i1", **changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "role": role,
        "name": name,
        "node": "n",
        "instance": instance,
        "pid": 1,
        "data": "ipc:///nowhere",
        "device": "cpu",
        "versions": Versions(digend=__version__, python="3.11"),
    }
    return Hello(**{**fields, **changes})
