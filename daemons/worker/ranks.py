"""What this process is as one of several ranks of a trainer: asked to meet, meeting, rank, or none.

Owns the calls of the engine that are about ranks, and what the driver is told of them until the epoch is over. Must not
know sessions: the shell sends. Lives on the event loop; meeting and following block the compute thread, leaving is done
on a thread of its own, because what the compute thread waits for may never come.

Invariant: the process is of one epoch at a time; nothing is begun before leaving the epoch before it is done, and no
task of a job while the process is of another job's ranks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from daemons.worker.context import TaskContext
from daemons.worker.faults import explain
from daemons.worker.place import check_place
from daemons.worker.thread import ComputeThread
from digend.engines.protocols import RankedEngine
from digend.telemetry.logs import logger
from digend.wire.ranks import Ranks
from digend.wire.workers import JoinRanks, OpenStore, RankFailed, RankJoined, StoreOpened

log = logger()

News = StoreOpened | RankJoined | RankFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeans:
    """`meet_at`: this box's address for the others. `report` is called when there is news; the shell then sends it."""

    meet_at: str
    engine: Callable[[], RankedEngine]
    context: Callable[[], TaskContext]
    report: Callable[[], None]
    spawn: Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    stuck: Callable[[str], None]
    """The compute thread does not come back; says what it was at."""


@dataclass(slots=True, eq=False)
class _Epoch:
    """What the process is one of."""

    job: str
    number: int
    ranks: Ranks | None = None
    met: bool = False
    news: News | None = None
    context: TaskContext | None = None


class RankSeat:
    """Used from the event loop only. `stuck_s`: how long past the ranks' time limit the engine may take."""

    def __init__(self, thread: ComputeThread, means: RankMeans, stuck_s: float) -> None:
        self._thread = thread
        self._aside = ComputeThread("ranks")
        self._means = means
        self._stuck_s = stuck_s
        self._epoch: _Epoch | None = None
        self._turn = asyncio.Lock()
        self._leaving: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._aside.busy

    @property
    def inventory(self) -> dict[str, int]:
        """For HELLO: of which epoch of a job's ranks this process is one."""
        epoch = self._epoch
        return {epoch.job: epoch.number} if epoch is not None and epoch.met else {}

    @property
    def in_words(self) -> str:
        """`rank 1 of 4 of shapes-001`, or what it is about to be; "" where it is none."""
        epoch = self._epoch
        if epoch is None:
            return ""
        if epoch.ranks is None or not epoch.met:
            return f"meets the other ranks of {epoch.job}"
        return f"rank {epoch.ranks.rank} of {epoch.ranks.size} of {epoch.job}"

    def news(self, session: str) -> list[News]:
        """What the driver is to know of this epoch, told again to each new session."""
        epoch = self._epoch
        return [replace(epoch.news, session=session)] if epoch is not None and epoch.news is not None else []

    def open(self, asked: OpenStore) -> None:
        """Rank 0: open the store of an epoch."""
        self.leave("another epoch begins")
        epoch = self._epoch = _Epoch(asked.job, asked.epoch)
        self._means.spawn(f"open the store of epoch {asked.epoch}", self._open(epoch))

    def join(self, asked: JoinRanks) -> None:
        """Meet the others; asked twice, once. Raises OffLoopback."""
        check_place(asked.ranks.store, self._means.meet_at, "trainer", "the trainer ranks")
        epoch = self._epoch
        if epoch is None or (epoch.job, epoch.number) != (asked.job, asked.ranks.epoch):
            self.leave("another epoch begins")
            epoch = self._epoch = _Epoch(asked.job, asked.ranks.epoch)
        elif epoch.ranks == asked.ranks:
            return
        elif epoch.ranks is not None:
            self.leave("the store is another")
            epoch = self._epoch = _Epoch(asked.job, asked.ranks.epoch)
        epoch.ranks = asked.ranks
        self._means.spawn(f"rank {asked.ranks.rank} of epoch {asked.ranks.epoch}", self._join(epoch, asked.ranks))

    def leave(self, reason: str, only: tuple[str, int] | None = None) -> "asyncio.Task[None] | None":
        """At once. `only`: if that is the job and the epoch."""
        epoch = self._epoch
        if epoch is None or only not in (None, (epoch.job, epoch.number)):
            return None
        log.info("leaving the ranks", job=epoch.job, epoch=epoch.number, reason=reason)
        self._epoch = None
        if epoch.context is not None:
            epoch.context.revoke(reason)
        if epoch.ranks is not None:
            self._leaving = self._means.spawn(f"leave epoch {epoch.number}", self._leave(epoch.ranks, self._leaving))
        return self._leaving

    async def make_way(self, job: str) -> None:
        """Before a task of this job: ranks of another one are left, and what was left is over."""
        if self._epoch is not None and self._epoch.job != job:
            self.leave(f"a task of {job} is next")
        await self._left()

    # ------------------------------------------------------------------------------------------------- the calls

    async def _open(self, epoch: _Epoch) -> None:
        async with self._turn:
            await self._left()
            if epoch is not self._epoch:
                return
            try:
                store = await self._thread.call(partial(self._means.engine().open_store, self._means.meet_at))
            except Exception as error:
                self._failed(epoch, error)
                return
        self._tell(epoch, StoreOpened(session="", job=epoch.job, epoch=epoch.number, store=store))

    async def _join(self, epoch: _Epoch, ranks: Ranks) -> None:
        async with self._turn:
            await self._left()
            if epoch is not self._epoch:
                return
            epoch.context = context = self._means.context()
            try:
                await self._thread.call(partial(self._meet, epoch, ranks))
                if epoch is not self._epoch:
                    return
                epoch.met = True
                self._tell(epoch, RankJoined(session="", job=epoch.job, epoch=epoch.number))
                if ranks.rank > 0:
                    await self._thread.call(partial(self._means.engine().follow, context))
                    epoch.met = False
                    log.info("rank 0 has left", job=epoch.job, epoch=epoch.number)
            except Exception as error:
                epoch.met = False
                self._failed(epoch, error)

    def _meet(self, epoch: _Epoch, ranks: Ranks) -> None:
        """On the compute thread, which may have been busy until after this process was told to leave."""
        if epoch is self._epoch:
            self._means.engine().join(ranks)

    async def _leave(self, ranks: Ranks, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        await self._aside.call(self._means.engine().leave)
        out = asyncio.ensure_future(self._thread.call(lambda: None))
        done, _ = await asyncio.wait([out], timeout=ranks.timeout_s + self._stuck_s)
        if not done:
            self._means.stuck(f"rank {ranks.rank} of epoch {ranks.epoch}")

    async def _left(self) -> None:
        if self._leaving is not None:
            await self._leaving

    # ------------------------------------------------------------------------------------------------- telling

    def _failed(self, epoch: _Epoch, error: Exception) -> None:
        fault = explain(error)
        log.warning("rank failed", job=epoch.job, epoch=epoch.number, reason=fault.reason, error=fault.message)
        self._tell(epoch, RankFailed(session="", job=epoch.job, epoch=epoch.number, error=fault))

    def _tell(self, epoch: _Epoch, news: News) -> None:
        if epoch is self._epoch:
            epoch.news = news
            self._means.report()
