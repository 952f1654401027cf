"""The worker's conversation with the driver. Consumes its messages; produces HELLO, heartbeats, results, versions.

Owns the session and the end of the process; the tasks are `work`'s, the versions `staging`'s. Everything here is on the
event loop and nothing here takes long. Invariant: a result is told to every session until one acknowledges it, so that
neither a driver's restart nor a lost connection loses work; the process outlives any number of sessions.

What waits for what: greet waits for WELCOME or a delay; beat for the clock; work for leases and the engine; each
staging task for an owner's blob server; drain for the running task, then for acknowledgements.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from daemons.worker.blobs import WorkerBlobs
from daemons.worker.compute import Compute, EngineStart
from daemons.worker.leases import Outcome
from daemons.worker.session import Session
from daemons.worker.staging import Key, StageMeans, Staging
from daemons.worker.thread import ComputeThread
from daemons.worker.work import Work
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger
from digend.wire.messages import (
    Assign,
    EndJob,
    FreeBlobs,
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Refused,
    ResultAck,
    Retire,
    Revoke,
    Role,
    Stage,
    Versions,
    Welcome,
)
from digend.wire.refs import WeightsRef
from digend.wire.tensors import Array

log = logger()

EVICTED = "evicted"
"""How the reason of `Refused` begins where the driver ended the session because of this worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same in every HELLO of this process."""

    role: Role
    name: str
    node: str
    instance: str
    data: str
    versions: Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTiming:
    """Seconds. `stuck_s`: how long an evicted worker's task may go without progress before the process ends itself."""

    lost_s: float = 15.0
    drain_s: float = 30.0
    stop_s: float = 2.0
    acknowledge_s: float = 3.0
    resend_s: float = 5.0
    stuck_s: float = 30.0


class Line(Protocol):
    """The worker's end of the control plane (`digend.net.link.Link`)."""

    async def connected(self) -> None: ...

    def send(self, message: object) -> bool: ...

    def messages(self) -> AsyncIterator[object]: ...


class Worker:
    """One worker process's life; `run` returns its exit code."""

    def __init__(
        self,
        identity: Identity,
        link: Line,
        blobs: WorkerBlobs,
        start: EngineStart,
        timing: ShellTiming | None = None,
    ) -> None:
        self._identity = identity
        self._link = link
        self._blobs = blobs
        self._start = start
        self._device = ""
        self._timing = timing or ShellTiming()
        self._session = Session()
        self._checker = ComputeThread("weights")
        self._thread = ComputeThread("engine")
        means = StageMeans(
            pull=self._blobs.pull_weights, check=self._check, report=self._report_version, spawn=self._spawn
        )
        self._staging = Staging(means)
        self._work = Work(self._thread, blobs, self._staging, self._report)
        self._sent_s: dict[str, float] = {}
        self._draining = False
        self._usable = asyncio.Event()
        self._left = asyncio.Event()
        self._joined = asyncio.Event()
        self._changed = asyncio.Event()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[type, Callable[[Any], None]] = {
            Assign: self._on_assign,
            Revoke: lambda message: self._work.revoke(message.lease, message.reason),
            ResultAck: self._on_acknowledged,
            Stage: lambda message: self._staging.want(message.weights),
            Retire: lambda message: self._staging.retire(message.job, message.oldest_version),
            FreeBlobs: lambda message: self._blobs.free(message.blobs),
            EndJob: self._on_end_job,
            HeartbeatAck: lambda message: self._session.heard(self._now()),
        }

    async def run(self) -> int:
        """Until asked to stop (42), refused for good (78) or stuck (1). Raises what broke the shell or the engine."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._spawn("blobs", self._blobs.run())
            self._spawn("read", self._read())
            self._spawn("work", self._work.run(self._build, self._usable))
            self._spawn("greet", self._greet())
            self._spawn("beat", self._beat())
            code = await self._ended
            for task in self._tasks:
                task.cancel()
        return code

    def ask_to_stop(self) -> None:
        """The first time: drain. The second time: at once."""
        if self._draining:
            self._end(ExitCode.ASKED_TO_STOP)
        else:
            self._draining = True
            self._spawn("drain", self._drain())

    @property
    def busy(self) -> bool:
        """Whether a thread still computes, so that the interpreter cannot end in order."""
        return self._thread.busy or self._checker.busy

    # ------------------------------------------------------------------------------------------------- loops

    async def _greet(self) -> None:
        await self._usable.wait()
        while True:
            if pause_s := self._session.pause_s():
                await asyncio.sleep(pause_s)
            await self._connected()
            self._link.send(self._hello())
            delay_s, say_so = self._session.greeted()
            if say_so:
                log.info("waiting for the driver's welcome", name=self._identity.name)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._joined.wait(), delay_s)
                await self._left.wait()

    async def _connected(self) -> None:
        waiting = asyncio.ensure_future(self._link.connected())
        try:
            done, _ = await asyncio.wait([waiting], timeout=2.0)
            if not done:
                log.info("waiting for the driver", name=self._identity.name)
            await waiting
        finally:
            waiting.cancel()

    async def _read(self) -> None:
        async for message in self._link.messages():
            if isinstance(message, Welcome):
                self._on_welcome(message)
            elif isinstance(message, Refused):
                self._on_refused(message)
            elif type(message) in self._answers:
                if getattr(message, "session", None) == self._session.id:
                    self._answers[type(message)](message)
            else:
                log.warning("not a message for a worker", what=str(message))

    async def _beat(self) -> None:
        while True:
            await self._joined.wait()
            await asyncio.sleep(self._session.heartbeat_s)
            if self._session.silent(self._now(), self._timing.lost_s):
                log.warning("the driver is silent, greeting it again", after_s=self._timing.lost_s)
                self._leave()
            if self._session.id is not None:
                self._send_beat(self._session.id)

    async def _drain(self) -> None:
        """Finish the running task, see its result acknowledged, say goodbye. What waits ends with the session."""
        log.info("draining")
        self._work.leases.clear_waiting()
        if self._session.id is not None:
            if not await self._until(lambda: self._work.leases.idle, self._timing.drain_s):
                self._work.revoke_all("the worker is stopping")
                await self._until(lambda: self._work.leases.idle, self._timing.stop_s)
            await self._until(lambda: not self._work.leases.outcomes, self._timing.acknowledge_s)
        if self._session.id is not None:
            self._link.send(Goodbye(session=self._session.id, reason="asked to stop"))
        self._end(ExitCode.ASKED_TO_STOP)

    async def _watch_stuck(self) -> None:
        """After an eviction: a revoked task that does not stop will not be helped by another session."""
        mark = self._work.progress
        if mark.lease is None or await self._until(lambda: self._work.progress != mark, self._timing.stuck_s):
            return
        log.error("the running task is stuck, ending the process", lease=mark.lease)
        self._end(ExitCode.TARGET_FAILED)

    # ---------------------------------------------------------------------------------------------- messages

    def _on_welcome(self, message: Welcome) -> None:
        self._session.welcome(message, self._now())
        self._left.clear()
        self._joined.set()
        log.info("joined", session=message.session, epoch=message.epoch)
        for outcome in self._work.leases.outcomes:
            self._report(outcome)
        for news in self._staging.news(message.session):
            self._link.send(news)

    def _on_refused(self, message: Refused) -> None:
        log.warning("refused by the driver", reason=message.reason, fatal=message.fatal)
        if message.fatal:
            self._end(ExitCode.BAD_CONFIG)
            return
        if self._session.id is not None and message.reason.startswith(EVICTED):
            self._work.revoke_all(message.reason)
            self._spawn("stuck?", self._watch_stuck())
        self._leave()

    def _on_assign(self, message: Assign) -> None:
        """While draining it is left alone: the lease ends with the session, and another worker gets it."""
        if not self._draining:
            self._work.accept(message)

    def _on_acknowledged(self, message: ResultAck) -> None:
        self._work.leases.forget(message.lease)
        self._sent_s.pop(message.lease, None)
        self._changed.set()

    def _on_end_job(self, message: EndJob) -> None:
        self._staging.end(message.job)
        self._spawn(f"end {message.job}", self._work.end(message.job))

    # ----------------------------------------------------------------------------------------------- sending

    def _hello(self) -> Hello:
        who = self._identity
        return Hello(
            role=who.role,
            name=who.name,
            node=who.node,
            instance=who.instance,
            pid=os.getpid(),
            data=who.data,
            device=self._device,
            versions=who.versions,
            held=self._work.leases.inventory(),
            prepared=self._work.prepared(),
        )

    def _send_beat(self, session: str) -> None:
        progress = self._work.progress
        beat = Heartbeat(
            session=session,
            seq=self._session.beat(),
            lease=progress.lease,
            done=progress.done,
            total=progress.total,
            resident_bytes=resident_bytes(),
        )
        self._link.send(beat)
        late_s = self._now() - self._timing.resend_s
        for outcome in self._work.leases.outcomes:
            if self._sent_s.get(outcome.lease, late_s) <= late_s:
                self._report(outcome)

    def _report(self, outcome: Outcome) -> None:
        """Tell a result; it is told again until it is acknowledged."""
        self._changed.set()
        if self._session.id is not None:
            self._link.send(outcome.message(self._session.id))
            self._sent_s[outcome.lease] = self._now()

    def _report_version(self, key: Key) -> None:
        if self._session.id is not None:
            for news in self._staging.news(self._session.id, key):
                self._link.send(news)

    # ------------------------------------------------------------------------------------------------- means

    def _leave(self) -> None:
        self._session.leave()
        self._joined.clear()
        self._left.set()

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def _build(self) -> Compute:
        """On the compute thread."""
        compute = Compute(self._identity.role, self._start)
        self._device = compute.device
        return compute

    async def _check(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> int:
        return await self._checker.call(lambda: self._work.engine.check_weights(weights, tensors))

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Whether it came to hold in time; looked at whenever something changed, and a few times a second."""
        end_s = self._now() + seconds
        while not holds() and self._now() < end_s:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 0.2)
        return holds()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
