"""A scripted worker and a scripted recorder over real sockets: canned results, no tensors, no torch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from digend.config.node import NodeConfig
from digend.net.link import Link
from digend.wire.protocol import Refused
from digend.wire.records import Record
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import (
    CheckpointResult,
    CheckpointTask,
    CommitResult,
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    PrepareResult,
    PrepareTask,
    Receipt,
    ResetResult,
    ResetTask,
    SampleScore,
    ScoreResult,
    ScoreTask,
    UpdateResult,
    UpdateTask,
)
from digend.wire.workers import (
    Assign,
    EndJob,
    Heartbeat,
    HeldLease,
    Hello,
    PreparedJob,
    Records,
    RecordsWritten,
    ResultAck,
    Role,
    Stage,
    Staged,
    TaskDone,
    Welcome,
)
from tests.driver.world import hello_of

P = TypeVar("P", bound="FakePeer")
NUM_TENSORS = 3
NUM_TIMESTEPS = 4


class FakePeer:
    """Says HELLO, heartbeats, keeps every message; subclasses answer."""

    def __init__(self, node: NodeConfig, role: Role, name: str, instance: str = "i1", **hello: Any) -> None:
        self.link = Link.connect(node.address)
        self.greeting = hello_of(role, name, instance, **hello)
        self.session: str | None = None
        self.heartbeat_s = 1.0
        self.heard: list[object] = []
        self.clock_ahead_s = 0.0
        self.waiting: dict[str, Any] = {}
        """Bytes that heartbeats tell, by their field."""
        self._news = asyncio.Condition()

    async def greet(self) -> None:
        await self.link.connected()
        self.link.send(self.hello())

    def hello(self) -> Hello:
        """What is said to a driver; subclasses add what they have in their hands."""
        return self.greeting

    async def live(self) -> None:
        """Until cancelled."""
        await self.greet()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            async for message in self.link.messages():
                if isinstance(message, Welcome):
                    self.session, self.heartbeat_s = message.session, message.heartbeat_s
                elif isinstance(message, Refused) and not message.fatal:
                    self.session = None
                    self.link.send(self.hello())
                self.answer(message)
                async with self._news:
                    self.heard.append(message)
                    self._news.notify_all()

    def answer(self, message: object) -> None:
        """For subclasses."""

    async def until(self, kind: type, count: int = 1) -> list[Any]:
        """Waits until so many messages of a kind have come."""

        def found() -> list[Any]:
            return [message for message in self.heard if isinstance(message, kind)]

        await self.when(lambda: len(found()) >= count)
        return found()

    async def when(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds after a message has come."""
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(holds)

    async def _beat(self) -> None:
        seq = 0
        while True:
            await asyncio.sleep(self.heartbeat_s)
            if self.session is not None:
                seq += 1
                wall_ns = time.time_ns() + round(self.clock_ahead_s * 1e9)
                self.link.send(Heartbeat(session=self.session, seq=seq, wall_ns=wall_ns, **self.waiting))


class FakeWorker(FakePeer):
    """Does every task at once; keeps results until they are acknowledged, and hands them in again after a HELLO."""

    def __init__(self, node: NodeConfig, role: Role, name: str, instance: str = "i1") -> None:
        super().__init__(node, role, name, instance)
        self.unacknowledged: dict[str, TaskDone] = {}
        self.tasks: list[str] = []
        self.handed_in_again = 0
        self._prepared: dict[str, PreparedJob] = {}
        self._blobs = 0

    def hello(self) -> Hello:
        held = tuple(HeldLease(lease=lease, done=True) for lease in self.unacknowledged)
        return replace(self.greeting, held=held, prepared=tuple(self._prepared.values()))

    def answer(self, message: object) -> None:
        match message:
            case Welcome(session=session):
                for done in self.unacknowledged.values():
                    self.handed_in_again += 1
                    self.link.send(replace(done, session=session))
            case Assign(session=session, lease=lease, task=task):
                self.tasks.append(task.kind)
                self._keep(task)
                receipt = Receipt(total_ns=1000, stages=((task.kind, 1000),))
                done = TaskDone(session=session, lease=lease, result=self._result(task), receipt=receipt)
                self.unacknowledged[lease] = done
                self.link.send(done)
            case ResultAck(lease=lease):
                self.unacknowledged.pop(lease, None)
            case Stage(session=session, weights=weights):
                self.link.send(
                    Staged(
                        session=session,
                        job=weights.job,
                        incarnation=weights.incarnation,
                        version=weights.version,
                        num_bound=weights.num_tensors,
                    )
                )

    def _keep(self, task: Any) -> None:
        """What a trainer reports of itself in its next HELLO."""
        job, version = task.job, getattr(task, "version", 0)
        held = self._prepared.get(job)
        if isinstance(task, PrepareTask):
            self._prepared[job] = PreparedJob(job=job, incarnation=task.incarnation, version=version)
        elif held is not None and isinstance(task, UpdateTask):
            applied = (*held.applied, task.micro_batch)
            self._prepared[job] = replace(held, global_step=task.global_step, applied=applied)
        elif held is not None and isinstance(task, CommitTask):
            self._prepared[job] = replace(held, version=version + 1, applied=())
        elif held is not None and isinstance(task, ResetTask):
            self._prepared[job] = replace(held, applied=())

    def _result(self, task: Any) -> Any:
        match task:
            case PrepareTask():
                trains = self.greeting.role == "trainer"
                sigmas = tuple(1 - at / NUM_TIMESTEPS for at in range(NUM_TIMESTEPS + 1))
                return PrepareResult(
                    base_digest="b",
                    num_parameters=10,
                    num_trainable=10,
                    sigmas=sigmas,
                    eval_sigmas=sigmas,
                    weights=self._weights(task.job, task.incarnation, task.version) if trains else None,
                )
            case EncodeTask(prompts=prompts):
                return EncodeResult(conditions={prompt.uid: self._blob() for prompt in prompts})
            case GenerateTask(groups=groups, purpose=purpose):
                return GenerateResult(
                    trajectory=self._blob() if purpose == "train" else None,
                    samples=self._blob(),
                    num_samples=sum(len(group.samples) for group in groups),
                )
            case ScoreTask(items=items):
                return ScoreResult(
                    scores=tuple(
                        SampleScore(
                            prompt=item.prompt.uid,
                            index=item.index,
                            reward=float(item.index),
                            components={"jpeg_compressibility": float(item.index)},
                        )
                        for item in items
                    )
                )
            case UpdateTask(items=items):
                return UpdateResult(
                    num_pairs=sum(len(item.timesteps) for item in items),
                    loss_sum=1.0,
                    clipped=0,
                    ratio_sum=1.0,
                    max_abs_log_ratio=0.0,
                    kl_sum=0.0,
                )
            case CommitTask(job=job, incarnation=incarnation, version=version):
                weights = self._weights(job, incarnation, version + 1)
                return CommitResult(gradient_norm=1.0, learning_rate=1e-3, weights=weights)
            case CheckpointTask(global_step=step, final=final):
                return CheckpointResult(
                    path=f"/checkpoints/{step}", digest="c", pipeline="/pipeline" if final else None
                )
            case ResetTask():
                return ResetResult()
        raise AssertionError(task)

    def _blob(self) -> BlobRef:
        self._blobs += 1
        hello = self.greeting
        return BlobRef(
            owner=hello.data, instance=hello.instance, id=f"{hello.name}-{self._blobs}", num_bytes=8, digest="d"
        )

    def _weights(self, job: str, incarnation: int, version: int) -> WeightsRef:
        return WeightsRef(
            blob=self._blob(),
            job=job,
            incarnation=incarnation,
            version=version,
            num_tensors=NUM_TENSORS,
            form="full",
        )

    @property
    def ended(self) -> bool:
        return any(isinstance(message, EndJob) for message in self.heard)


class FakeRecorder(FakePeer):
    """Keeps records as a run folder would, in order. `patience` batches are acknowledged, then no more."""

    def __init__(self, node: NodeConfig, patience: int = 10**9) -> None:
        super().__init__(node, "recorder", "n/recorder")
        self.records: dict[str, list[Record]] = {}
        self.configs: dict[str, str] = {}
        self.batches = 0
        self._patience = patience

    def hello(self) -> Hello:
        return replace(self.greeting, written={job: len(records) for job, records in self.records.items()})

    def answer(self, message: object) -> None:
        if not isinstance(message, Records):
            return
        self.batches += 1
        self.configs.update(message.configs)
        for record in message.records:
            self.records.setdefault(record.job, []).append(record)
        if self.batches <= self._patience:
            last = message.records[-1]
            self.link.send(RecordsWritten(session=message.session, job=last.job, next_seq=last.seq + 1))


@asynccontextmanager
async def living(peer: P) -> AsyncIterator[P]:
    """A peer at work; at the end it vanishes without a goodbye."""
    task = asyncio.create_task(peer.live())
    try:
        yield peer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        peer.link.close(0)
