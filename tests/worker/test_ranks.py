"""Trainers that are one trainer: they meet, one follows and still beats, and each leaves when told; real processes."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from digend.exitcodes import ExitCode
from digend.wire.protocol import Refused
from digend.wire.ranks import Ranks
from digend.wire.workers import (
    Goodbye,
    Hello,
    JoinRanks,
    LeaveRanks,
    OpenStore,
    RankFailed,
    RankJoined,
    StoreOpened,
    TaskDone,
)
from tests.worker import tasks
from tests.worker.fake_ranks import WEDGED
from tests.worker.scripted import Cluster, ScriptedDriver, driver_at, ended, terminate

ZERO, ONE = "n/trainer/0", "n/trainer/1"


class Pair:
    """Two trainers and their sessions."""

    def __init__(self, cluster: Cluster, driver: ScriptedDriver) -> None:
        self.cluster, self.driver = cluster, driver
        self.sessions: dict[str, str] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, timing: dict[str, float] | None = None) -> None:
        for slot, name in enumerate((ZERO, ONE)):
            self.processes[name] = await self.cluster.start("trainer", timing=timing, slot=slot)
        for _ in self.processes:
            hello = await self.driver.expect(Hello)
            while hello.name in self.sessions:
                hello = await self.driver.expect(Hello)
            self.sessions[hello.name] = self.driver.welcome(hello.name)

    async def store(self, epoch: int) -> str:
        self.driver.send(ZERO, OpenStore(session=self.sessions[ZERO], job="j", epoch=epoch))
        opened = await self.driver.expect(StoreOpened)
        assert (opened.job, opened.epoch, opened.session) == ("j", epoch, self.sessions[ZERO])
        return opened.store

    def ask(self, name: str, epoch: int, store: str, timeout_s: float = 10.0) -> None:
        rank = (ZERO, ONE).index(name)
        ranks = Ranks(epoch=epoch, rank=rank, size=2, replicas=1, store=store, timeout_s=timeout_s)
        self.driver.send(name, JoinRanks(session=self.sessions[name], job="j", ranks=ranks))

    async def meet(self, epoch: int = 1) -> None:
        store = await self.store(epoch)
        for name in (ONE, ZERO):
            self.ask(name, epoch, store)
        met = {(await self.driver.expect(RankJoined)).session for _ in range(2)}
        assert met == set(self.sessions.values())

    async def beats(self, name: str) -> None:
        """Some heartbeats from now on: whatever the process was told has been begun."""
        newest = max((each.seq for each in self.driver.beats if each.session == self.sessions[name]), default=0)
        await self.driver.beat(self.sessions[name], None, seq=newest + 3)

    def leave(self, name: str, epoch: int = 1) -> None:
        self.driver.send(name, LeaveRanks(session=self.sessions[name], job="j", epoch=epoch, reason="enough"))


@pytest_asyncio.fixture
async def pair(cluster: Cluster, driver: ScriptedDriver) -> AsyncIterator[Pair]:
    yield Pair(cluster, driver)


async def test_they_meet_work_and_leave_when_told(pair: Pair) -> None:
    await pair.start()
    await pair.meet(3)
    pair.leave(ONE, epoch=2)  # another epoch's is not for it
    pair.driver.assign(ZERO, pair.sessions[ZERO], "a", tasks.prepare())
    assert (await pair.driver.expect(TaskDone)).lease == "a"
    await pair.beats(ONE)  # following blocks the compute thread, not heartbeats
    for name in (ZERO, ONE):
        pair.leave(name, 3)
    await pair.meet(4)
    assert not pair.driver.has(RankFailed), "leaving when told is no failure"
    pair.driver.send(ONE, Refused(reason="unknown session"))
    again, session = await pair.driver.join(ONE)
    assert (again.ranks, again.interface) == ({"j": 4}, "")
    assert (await pair.driver.expect(RankJoined, session)).epoch == 4, "a new session is told who is a rank"
    pair.processes[ZERO].kill()
    failed = await pair.driver.expect(RankFailed)
    assert (failed.session, failed.epoch, failed.error.reason) == (session, 4, "rank_lost")


async def test_a_failure_without_a_session_is_told_to_the_next(cluster: Cluster) -> None:
    async with driver_at(cluster.address) as driver:
        pair = Pair(cluster, driver)
        await pair.start()
        await pair.meet()
    pair.processes[ZERO].kill()
    async with driver_at(cluster.address) as driver:
        _, session = await driver.join(ONE)
        failed = await driver.expect(RankFailed, session)
        assert failed.epoch == 1


async def test_an_evicted_rank_leaves_and_a_stopped_one_says_goodbye(pair: Pair) -> None:
    await pair.start()
    await pair.meet(1)
    pair.driver.send(ZERO, Refused(reason="evicted: no heartbeat for 15.0 s"))
    failed = await pair.driver.expect(RankFailed)
    assert failed.session == pair.sessions[ONE]
    again, pair.sessions[ZERO] = await pair.driver.join(ZERO)
    assert again.ranks == {}
    pair.leave(ONE, 1)
    await pair.meet(2)
    terminate(pair.processes[ONE])
    goodbye = await pair.driver.expect(Goodbye)
    assert goodbye.session == pair.sessions[ONE]
    code, _ = await ended(pair.processes[ONE])
    assert code == ExitCode.ASKED_TO_STOP


async def test_who_nobody_meets_says_so_and_who_does_not_come_back_ends(pair: Pair) -> None:
    await pair.start(timing={"stuck_s": 0.3})
    store = await pair.store(1)
    pair.ask(ZERO, 1, store, timeout_s=0.3)
    failed = await pair.driver.expect(RankFailed)
    assert failed.session == pair.sessions[ZERO]
    assert "not all ranks came" in failed.error.message
    pair.ask(ONE, WEDGED, store, timeout_s=0.3)
    await pair.beats(ONE)
    pair.leave(ONE, WEDGED)
    code, log = await ended(pair.processes[ONE])
    assert code == ExitCode.TARGET_FAILED
    assert "the engine does not come back" in log


async def test_off_loopback_without_an_interface_is_refused(cluster: Cluster, driver: ScriptedDriver) -> None:
    process = await cluster.start("trainer", slot=1)
    _, session = await driver.join(ONE)
    pair = Pair(cluster, driver)
    pair.sessions[ONE] = session
    pair.ask(ONE, 1, "192.0.2.7:4711")
    goodbye = await driver.expect(Goodbye)
    assert 'interface = "eth0"' in goodbye.reason
    code, log = await ended(process)
    assert code == ExitCode.BAD_CONFIG
    assert "torch.distributed of this box is bound to loopback" in log
