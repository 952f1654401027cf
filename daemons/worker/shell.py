"""The worker's conversation with the driver. Consumes its messages; produces HELLO, heartbeats, results, versions.

Owns the session and the end of the process; the tasks are `work`'s, the versions `staging`'s. Everything here is on the
event loop and nothing here takes long. Invariant: a result is told to every session until one acknowledges it, so that
neither a driver's restart nor a lost connection loses work; the process outlives any number of sessions.

What waits for what: greet waits for WELCOME or a delay; beat for the clock; work for leases and the engine; each
staging task for an owner's blob server; drain for the running task, then for acknowledgements.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from daemons.metrics.worker import Glance, WorkerMetrics
from daemons.notify import Notifier
from daemons.worker.blobs import WorkerBlobs
from daemons.worker.broadcasts import Broadcasts
from daemons.worker.compute import Compute, EngineStart
from daemons.worker.context import TaskContext
from daemons.worker.identity import Identity, ShellTiming
from daemons.worker.leases import Outcome
from daemons.worker.place import OffLoopback
from daemons.worker.presence import in_words, tell
from daemons.worker.ranks import RankMeans, RankSeat
from daemons.worker.reports import Line, Reports, resident_bytes
from daemons.worker.session import Session
from daemons.worker.staging import Key, StageMeans, Staging
from daemons.worker.thread import ComputeThread
from daemons.worker.work import Work
from digend.config.node import TimingConfig
from digend.engines.protocols import BroadcastEngine, RankedEngine
from digend.exitcodes import ExitCode
from digend.telemetry.logs import logger
from digend.wire.devices import DeviceState
from digend.wire.protocol import Refused
from digend.wire.refs import WeightsRef
from digend.wire.tensors import Array
from digend.wire.workers import (
    Assign,
    EndJob,
    FreeBlobs,
    HeartbeatAck,
    JoinRanks,
    LeaveRanks,
    OpenStore,
    ResultAck,
    Retire,
    Revoke,
    Stage,
    Welcome,
)

log = logger()

EVICTED = "evicted"
"""How the reason of `Refused` begins where the driver ended the session because of this worker."""


class Worker:
    """One worker process's life; `run` returns its exit code."""

    def __init__(
        self,
        identity: Identity,
        link: Line,
        blobs: WorkerBlobs,
        start: EngineStart,
        timing: ShellTiming | None = None,
        device_state: Callable[[], DeviceState | None] = lambda: None,
        notifier: Notifier | None = None,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._identity = identity
        self._link = link
        self._blobs = blobs
        self._start = start
        self._device = ""
        self._timing = timing or ShellTiming()
        self._device_state = device_state
        self._notifier = notifier or Notifier({})
        self._metrics = metrics
        self._session = Session()
        self._reports = Reports(identity, link, self._session)
        self._checker = ComputeThread("weights")
        self._thread = ComputeThread("engine")
        self._broadcasts = Broadcasts(identity, lambda: cast(BroadcastEngine, self._work.engine), blobs)
        means = StageMeans(
            pull=self._blobs.pull_weights,
            receive=self._broadcasts.receive,
            give_up=self._broadcasts.give_up,
            free=self._blobs.free,
            check=self._check,
            report=self._report_version,
            spawn=self._spawn,
        )
        self._staging = Staging(means)
        self._ranks = self._seat()
        self._work = Work(self._thread, blobs, self._staging, self._report, self._count, self._ranks.make_way)
        self._draining = False
        self._revoked: str | None = None
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
            Stage: self._on_stage,
            Retire: lambda message: self._staging.retire(message.job, message.oldest_version),
            FreeBlobs: lambda message: self._blobs.free(message.blobs),
            EndJob: self._on_end_job,
            OpenStore: self._ranks.open,
            JoinRanks: self._on_join_ranks,
            LeaveRanks: self._on_leave_ranks,
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
            self._spawn("signs of life", self._notifier.keep_alive())
            self._spawn(
                "presence", tell(self._notifier, self._usable, self._joined, self._doing, lambda: self._link.trouble)
            )
            if self._metrics is not None:
                self._spawn("metrics", self._metrics.watch(self._glance))
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
            self._notifier.stopping(self._doing())
            self._spawn("drain", self._drain())

    def set_timing(self, timing: TimingConfig) -> None:
        """How long the driver may be silent, from now on."""
        self._timing = replace(self._timing, lost_s=timing.lost_s)

    @property
    def busy(self) -> bool:
        """Whether a thread still computes, so that the interpreter cannot end in order."""
        return self._thread.busy or self._checker.busy or self._ranks.busy or self._broadcasts.busy

    # ------------------------------------------------------------------------------------------------- loops

    async def _greet(self) -> None:
        await self._usable.wait()
        while True:
            if pause_s := self._session.pause_s():
                await asyncio.sleep(pause_s)
            await self._given_up()
            await self._connected()
            self._reports.hello(self._device, self._work, self._ranks.inventory)
            delay_s, say_so = self._session.greeted()
            if say_so:
                log.info("waiting for the driver's welcome", name=self._identity.name)
            with suppress(TimeoutError):
                # Not wait_for, which swallows a cancellation that comes together with what was waited for.
                async with asyncio.timeout(delay_s):
                    await self._joined.wait()
                await self._left.wait()

    async def _given_up(self) -> None:
        """After an eviction: until the revoked task has stopped, nothing that a new session brings could be done."""
        revoked, self._revoked = self._revoked, None
        if revoked is not None:
            await self._until(lambda: self._work.progress.lease != revoked, float("inf"))

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
            self._reports.heartbeat(self._work.progress, self._device_state(), self._blobs.state)
            self._reports.all_outcomes(self._work.leases.outcomes, self._now(), self._timing.resend_s)

    async def _drain(self) -> None:
        """Finish the running task, see its result acknowledged, say goodbye. What waits ends with the session."""
        log.info("draining", running=self._work.progress.lease, unacknowledged=len(self._work.leases.outcomes))
        self._work.leases.clear_waiting()
        if self._session.id is not None:
            if not await self._until(lambda: self._work.leases.idle, self._timing.drain_s):
                self._work.revoke_all("the worker is stopping")
                await self._until(lambda: self._work.leases.idle, self._timing.stop_s)
            await self._until(lambda: not self._work.leases.outcomes, self._timing.acknowledge_s)
        self._reports.goodbye("asked to stop")
        if leaving := self._ranks.leave("the worker is stopping"):
            await asyncio.wait([leaving], timeout=self._timing.stop_s)
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
        self._reports.all_outcomes(self._work.leases.outcomes, self._now())
        self._reports.news(self._staging.news(message.session))
        self._reports.news(self._ranks.news(message.session))

    def _on_refused(self, message: Refused) -> None:
        log.warning("refused by the driver", reason=message.reason, fatal=message.fatal)
        if message.fatal:
            self._end(ExitCode.BAD_CONFIG)
            return
        if self._session.id is not None and message.reason.startswith(EVICTED):
            self._revoked = self._work.progress.lease
            self._ranks.leave(message.reason)
            self._work.revoke_all(message.reason)
            self._spawn("stuck?", self._watch_stuck())
        self._leave()

    def _on_assign(self, message: Assign) -> None:
        """While draining it is left alone: the lease ends with the session, and another worker gets it."""
        if not self._draining:
            self._work.accept(message)

    def _on_acknowledged(self, message: ResultAck) -> None:
        self._work.leases.forget(message.lease)
        self._reports.acknowledged(message.lease)
        self._changed.set()

    def _on_stage(self, message: Stage) -> None:
        """A trainer is told of broadcasts only: its own versions need no staging."""
        place = message.broadcast
        if self._identity.role != "trainer":
            self._staging.want(message.weights, message.workers, place)
        elif place is None:
            self._broadcasts.give_up(message.weights)
        else:
            self._spawn(f"broadcast {place.epoch}", self._broadcasts.send(message.weights, place))

    def _on_join_ranks(self, message: JoinRanks) -> None:
        try:
            self._ranks.join(message)
        except OffLoopback as error:
            log.error("cannot be one of the ranks", reason=str(error))
            self._reports.goodbye(str(error))
            self._end(ExitCode.BAD_CONFIG)

    def _on_leave_ranks(self, message: LeaveRanks) -> None:
        self._ranks.leave(message.reason, (message.job, message.epoch))

    def _on_end_job(self, message: EndJob) -> None:
        self._staging.end(message.job)
        self._work.drop(message.job)
        self._spawn(f"unload {message.job}", self._work.unload(message.job))

    # ------------------------------------------------------------------------------------------------- means

    def _report(self, outcome: Outcome) -> None:
        self._changed.set()
        self._reports.outcome(outcome, self._now())

    def _count(self, outcome: Outcome) -> None:
        if self._metrics is not None:
            self._metrics.finished(outcome.answer, outcome.receipt)

    def _report_version(self, key: Key) -> None:
        if self._session.id is not None:
            self._reports.news(self._staging.news(self._session.id, key))

    def _report_ranks(self) -> None:
        if self._session.id is not None:
            self._reports.news(self._ranks.news(self._session.id))

    def _seat(self) -> RankSeat:
        means = RankMeans(
            meet_at=self._identity.meet_at,
            engine=lambda: cast(RankedEngine, self._work.engine),
            context=lambda: TaskContext(self._blobs),
            report=self._report_ranks,
            spawn=self._spawn,
            stuck=self._stuck,
        )
        return RankSeat(self._thread, means, self._timing.stuck_s)

    def _stuck(self, what: str) -> None:
        log.error("the engine does not come back, ending the process", at=what)
        self._end(ExitCode.TARGET_FAILED)

    def _glance(self) -> Glance:
        blobs = self._blobs.state
        return Glance(
            joined=self._joined.is_set(),
            busy=self._work.progress.lease is not None,
            unacknowledged=len(self._work.leases.outcomes),
            held_bytes=blobs.held_bytes,
            spooled_bytes=blobs.spooled_bytes,
            spool_limit_bytes=blobs.spool_limit_bytes,
            resident_bytes=resident_bytes(),
            device=self._device_state(),
        )

    def _leave(self) -> None:
        self._session.leave()
        self._joined.clear()
        self._left.set()

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def _doing(self) -> str:
        joined, running = self._joined.is_set(), self._work.leases.running
        return in_words(joined, self._draining, running, self._work.progress, self._ranks.in_words)

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
                async with asyncio.timeout(0.2):
                    await self._changed.wait()
        return holds()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
