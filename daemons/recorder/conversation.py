"""The recorder's session with the driver: HELLO with what is on disk, records in, what was written back.

Owns the session and the queue of batches. Must not know files: the archive works on a thread of its own.
Invariant: a batch is acknowledged only after the archive returned from writing it; a batch of an older
session is dropped, because the driver sends it again to the newer one, from where HELLO said.

What waits for what: greet waits for WELCOME or a delay; beat for the clock; write for batches and the disk.
A disk that is full holds `write` back, and with it the driver's stream, never the job.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from daemons.metrics.recorder import RecorderMetrics
from daemons.notify import Notifier
from daemons.recorder.archive import Hole
from daemons.worker.presence import tell
from daemons.worker.session import Session
from digend.config.node import TimingConfig
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger
from digend.wire.protocol import Refused
from digend.wire.records import Record
from digend.wire.workers import Goodbye, Heartbeat, HeartbeatAck, Hello, Records, RecordsWritten, Versions, Welcome

T = TypeVar("T")

MAX_PROBLEM = 400
"""Letters of what a heartbeat says is wrong."""

log = logger()


class Line(Protocol):
    """The recorder's end of the control plane (`digend.net.link.Link`)."""

    @property
    def trouble(self) -> str: ...

    async def connected(self) -> None: ...

    def send(self, message: object) -> bool: ...

    def messages(self) -> AsyncIterator[object]: ...


class Store(Protocol):
    """Where records go (`Archive`). Called from one thread only; `write` raises Hole or OSError."""

    def wanted(self) -> dict[str, int]: ...

    def catch_up(self) -> list[str]: ...

    @property
    def troubles(self) -> tuple[str, ...]: ...

    @property
    def trackers_up(self) -> Mapping[str, bool]: ...

    def write(self, records: Sequence[Record], configs: Mapping[str, str]) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same in every HELLO of this process."""

    name: str
    node: str
    instance: str
    versions: Versions
    runs: str = ""
    """Where its run folders are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderTiming:
    """Seconds. A failed write is tried again after `first_retry_s`, then twice as late each time."""

    lost_s: float = 15.0
    first_retry_s: float = 0.5
    last_retry_s: float = 15.0
    drain_s: float = 15.0


class Recorder:
    """One recorder process's life; `run` returns its exit code."""

    def __init__(
        self,
        identity: Identity,
        link: Line,
        store: Store,
        timing: RecorderTiming,
        notifier: Notifier | None = None,
        metrics: RecorderMetrics | None = None,
    ) -> None:
        self._identity = identity
        self._link = link
        self._store = store
        self._timing = timing
        self._notifier = notifier or Notifier({})
        self._metrics = metrics
        self._session = Session()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._batches: asyncio.Queue[Records | None] = asyncio.Queue()
        self._unsaid: dict[str, int] = {}
        self._joined, self._left = asyncio.Event(), asyncio.Event()
        self._stopping, self._written = asyncio.Event(), asyncio.Event()
        self._caught_up = asyncio.Event()
        self._trouble = ""
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Until asked to stop (42) or refused for good (78). Raises what broke it."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work, name=name)
                for name, work in (
                    ("read", self._read()),
                    ("greet", self._greet()),
                    ("beat", self._beat()),
                    ("write", self._write()),
                    ("drain", self._drain()),
                    ("signs of life", self._notifier.keep_alive()),
                    (
                        "presence",
                        tell(self._notifier, self._caught_up, self._joined, self._in_words, lambda: self._link.trouble),
                    ),
                )
            ]
            code = await self._ended
            for task in tasks:
                task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        return code

    def set_timing(self, timing: TimingConfig) -> None:
        """How long the driver may be silent, from now on."""
        self._timing = replace(self._timing, lost_s=timing.lost_s)

    def ask_to_stop(self) -> None:
        """Write what is here, say goodbye, end."""
        self._notifier.stopping("draining")
        self._stopping.set()

    # ------------------------------------------------------------------------------------------------- loops

    async def _read(self) -> None:
        async for message in self._link.messages():
            if isinstance(message, Welcome):
                self._on_welcome(message)
            elif isinstance(message, Refused):
                self._on_refused(message)
            elif isinstance(message, Records) and message.session == self._session.id:
                self._batches.put_nowait(message)
            elif isinstance(message, HeartbeatAck) and message.session == self._session.id:
                self._session.heard(self._now())
            elif not isinstance(message, Records | HeartbeatAck):
                log.warning("not a message for the recorder", what=str(message)[:200])

    async def _greet(self) -> None:
        await self._catch_up()
        self._caught_up.set()
        while True:
            if pause_s := self._session.pause_s():
                await asyncio.sleep(pause_s)
            await self._link.connected()
            self._link.send(await self._hello())
            delay_s, say_so = self._session.greeted()
            if say_so:
                log.info("waiting for the driver's welcome", name=self._identity.name)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._joined.wait()
                await self._left.wait()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._session.heartbeat_s)
            if self._session.silent(self._now(), self._timing.lost_s):
                log.warning("the driver is silent, greeting it again", after_s=self._timing.lost_s)
                self._leave()
            if self._session.id is not None:
                self._link.send(self._heartbeat(self._session.id))
                self._say_written()

    def _heartbeat(self, session: str) -> Heartbeat:
        problem = "; ".join(filter(None, (self._trouble, *self._store.troubles)))[:MAX_PROBLEM]
        if self._metrics is not None:
            self._metrics.looked(self._batches.qsize(), self._store.trackers_up)
        return Heartbeat(session=session, seq=self._session.beat(), wall_ns=time.time_ns(), problem=problem)

    async def _write(self) -> None:
        while (batch := await self._batches.get()) is not None:
            await self._persist(batch)
        self._written.set()

    async def _drain(self) -> None:
        await self._stopping.wait()
        log.info("draining", batches=self._batches.qsize())
        self._batches.put_nowait(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.drain_s):
                await self._written.wait()
        if self._session.id is not None:
            self._link.send(Goodbye(session=self._session.id, reason="asked to stop"))
        self._end(ExitCode.ASKED_TO_STOP)

    # ------------------------------------------------------------------------------------------------- writing

    async def _persist(self, batch: Records) -> None:
        """Write one batch, again and again while the disk refuses; given up when its session is over."""
        delay_s = self._timing.first_retry_s
        while batch.session == self._session.id:
            begun = self._now()
            try:
                written = await self._on_thread(lambda: self._store.write(batch.records, batch.configs))
            except Hole as hole:
                log.warning("records are missing, greeting the driver again", reason=str(hole))
                self._leave()
            except OSError as error:
                self._trouble = f"cannot write records: {error}"
                if self._metrics is not None:
                    self._metrics.refused()
                log.error("cannot write records, will try again", error=str(error), in_s=delay_s)
                if not await self._pause(delay_s):
                    return
                delay_s = min(2 * delay_s, self._timing.last_retry_s)
            else:
                self._trouble = ""
                if self._metrics is not None:
                    self._metrics.wrote(len(batch.records), self._now() - begun)
                self._unsaid.update(written)
                self._say_written()
                return

    def _say_written(self) -> None:
        session = self._session.id
        for job, next_seq in list(self._unsaid.items()):
            if session is None:
                return
            if self._link.send(RecordsWritten(session=session, job=job, next_seq=next_seq)):
                del self._unsaid[job]

    async def _catch_up(self) -> None:
        try:
            late = await self._on_thread(self._store.catch_up)
        except OSError as error:
            log.error("cannot finish interrupted runs", error=str(error))
        else:
            if late:
                log.info("finished interrupted runs", jobs=late)

    async def _pause(self, seconds: float) -> bool:
        """False when asked to stop meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return not self._stopping.is_set()

    # ----------------------------------------------------------------------------------------------- messages

    def _on_welcome(self, message: Welcome) -> None:
        self._session.welcome(message, self._now())
        self._unsaid.clear()
        self._left.clear()
        self._joined.set()
        log.info("joined", session=message.session, epoch=message.epoch)

    def _on_refused(self, message: Refused) -> None:
        log.warning("refused by the driver", reason=message.reason, fatal=message.fatal)
        if message.fatal:
            self._end(ExitCode.BAD_CONFIG)
        else:
            self._leave()

    async def _hello(self) -> Hello:
        who = self._identity
        return Hello(
            role="recorder",
            name=who.name,
            node=who.node,
            instance=who.instance,
            pid=os.getpid(),
            data="",
            device="cpu",
            versions=who.versions,
            written=await self._on_thread(self._store.wanted),
            host=socket.gethostname(),
            runs=who.runs,
        )

    def _in_words(self) -> str:
        if self._stopping.is_set():
            return "draining"
        return (
            self._trouble
            or "; ".join(self._store.troubles)
            or ("recording" if self._joined.is_set() else "waiting for the driver")
        )

    def _leave(self) -> None:
        self._session.leave()
        self._joined.clear()
        self._left.set()

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
