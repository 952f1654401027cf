"""A task of one job behind the ranks of another, as one turn of the driver brings both; no process, no torch."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest_asyncio

from daemons.worker.blobs import WorkerBlobs
from daemons.worker.compute import Compute
from daemons.worker.context import TaskContext
from daemons.worker.leases import Outcome
from daemons.worker.ranks import RankMeans, RankSeat
from daemons.worker.staging import StageMeans, Staging
from daemons.worker.thread import ComputeThread
from daemons.worker.work import Work
from digend.engines.protocols import Context, TaskFault
from digend.net.blobs import BlobClient, BlobServer
from digend.wire.ranks import Ranks
from digend.wire.tasks import PrepareResult, ResultBody, TaskBody, TaskError
from digend.wire.workers import Assign, JoinRanks
from tests.worker import tasks
from tests.worker.fake_engine import FakeEngine

TIMEOUT_S = 30.0


class Reluctant(FakeEngine):
    """Leaves when the test says so; until then whatever it runs meets the ranks, as in the real one."""

    def __init__(self) -> None:
        super().__init__()
        self.together = False
        self.asked_to_leave, self.may_leave = threading.Event(), threading.Event()

    def join(self, ranks: Ranks) -> None:
        super().join(ranks)
        self.together = True

    def leave(self) -> None:
        self.asked_to_leave.set()
        assert self.may_leave.wait(TIMEOUT_S)
        super().leave()
        self.together = False

    def run(self, task: TaskBody, context: Context) -> ResultBody:
        if self.together:
            raise TaskFault("rank_lost", "rank 0 has lost another")
        return super().run(task, context)


class Trainer:
    """The seat and the tasks of a worker, without a session."""

    def __init__(self, folder: Path) -> None:
        self.engine = Reluctant()
        self.outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self.told, self.usable = asyncio.Event(), asyncio.Event()
        self.blobs = WorkerBlobs(BlobServer.bind("ipc", "i", folder), BlobClient())
        thread, self.tasks = ComputeThread("engine"), set[asyncio.Task[None]]()
        means = RankMeans(
            meet_at="127.0.0.1",
            engine=lambda: self.engine,
            context=lambda: TaskContext(self.blobs),
            report=self.told.set,
            spawn=self._spawn,
            stuck=self._never,
        )
        self.seat = RankSeat(thread, means, TIMEOUT_S)
        never = self._never
        staging = Staging(
            StageMeans(
                pull=never, receive=never, give_up=never, free=never, check=never, report=never, spawn=self._spawn
            )
        )
        self.work = Work(
            thread, self.blobs, staging, self.outcomes.put_nowait, lambda outcome: None, self.seat.make_way
        )
        compute = Compute("trainer", lambda: ("fake", self.engine))
        self._spawn("work", self.work.run(lambda: compute, self.usable))

    async def joined(self, rank: int) -> socket.socket:
        """One of two ranks of a job called `ranked`; the other is this test."""
        server = socket.create_server(("127.0.0.1", 0))
        store = f"127.0.0.1:{server.getsockname()[1]}" if rank else self.engine.open_store("127.0.0.1")
        ranks = Ranks(epoch=1, rank=rank, size=2, replicas=1, store=store, timeout_s=TIMEOUT_S)
        self.seat.join(JoinRanks(session="s", job="ranked", ranks=ranks))
        if rank:
            other = (await asyncio.to_thread(server.accept))[0]
            other.sendall(b"go")
        else:
            host, _, port = store.rpartition(":")
            other = await asyncio.to_thread(socket.create_connection, (host, int(port)))
        server.close()
        await self.told.wait()
        return other

    def assign(self, lease: str) -> None:
        self.work.accept(Assign(session="s", lease=lease, attempt=0, lease_s=60.0, task=tasks.prepare("alone")))

    async def outcome(self) -> Outcome:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.outcomes.get()

    def close(self) -> None:
        self.engine.may_leave.set()
        for task in self.tasks:
            task.cancel()
        self.blobs.close()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        return task

    def _never(self, *what: object) -> Any:
        raise AssertionError(what)


@pytest_asyncio.fixture(params=[0, 1], ids=["rank 0", "rank 1"])
async def ranked(request: Any, tmp_path: Path) -> AsyncIterator[Trainer]:
    """A trainer that is one of two ranks; rank 1's compute thread follows."""
    trainer = Trainer(tmp_path)
    await trainer.usable.wait()
    with await trainer.joined(request.param):
        yield trainer
        trainer.close()


async def test_a_task_of_another_job_waits_until_the_ranks_were_left(ranked: Trainer) -> None:
    ranked.seat.leave("the job is completed", ("ranked", 1))
    ranked.assign("a")
    assert await asyncio.to_thread(ranked.engine.asked_to_leave.wait, TIMEOUT_S)
    assert ranked.outcomes.empty()
    ranked.engine.may_leave.set()
    assert isinstance((await ranked.outcome()).answer, PrepareResult)


async def test_a_task_of_another_job_ends_the_ranks(ranked: Trainer) -> None:
    """Nobody said that they are over, but no task of another job comes while they are not."""
    ranked.engine.may_leave.set()
    ranked.assign("a")
    assert isinstance((await ranked.outcome()).answer, PrepareResult)
    assert ranked.seat.inventory == {}


async def test_a_lease_that_is_revoked_while_it_waits_is_never_begun(ranked: Trainer) -> None:
    ranked.seat.leave("the job is completed", ("ranked", 1))
    ranked.assign("a")
    assert await asyncio.to_thread(ranked.engine.asked_to_leave.wait, TIMEOUT_S)
    ranked.work.revoke("a", "not wanted")
    ranked.engine.may_leave.set()
    answer = (await ranked.outcome()).answer
    assert isinstance(answer, TaskError)
    assert (answer.reason, ranked.engine.jobs) == ("cancelled", set())
