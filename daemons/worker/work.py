"""A worker's tasks, one at a time: leases, the running task's context, and what the engine holds between two tasks.

Owns the results until the driver acknowledges them. Must not know sessions or sockets: the shell sends. Lives on the
event loop; everything that takes long happens on the compute thread. Invariant: the inventory is the state between two
tasks, plus the lease that runs, so that a driver can tell what an unfinished task would still add.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from daemons.worker.compute import Compute
from daemons.worker.context import Blobs, TaskContext
from daemons.worker.leases import Held, Leases, Outcome
from daemons.worker.staging import Staging
from daemons.worker.thread import ComputeThread
from digend.engines.protocols import Engine
from digend.telemetry.logs import about, logger
from digend.wire.tasks import GenerateTask, Receipt, TaskError
from digend.wire.workers import Assign, PreparedJob

log = logger()

NOTHING_DONE = Receipt(total_ns=0, stages=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of the running task; `lease` is None between two."""

    lease: str | None = None
    done: int = 0
    total: int = 0


class Work:
    """`report` is called with each outcome, again where it is asked for again; `ended` once. Both on the event loop.
    `make_way` is awaited with a task's job before the task: then nothing of another job is in its way."""

    def __init__(
        self,
        thread: ComputeThread,
        blobs: Blobs,
        staging: Staging,
        report: Callable[[Outcome], None],
        ended: Callable[[Outcome], None],
        make_way: Callable[[str], Awaitable[None]],
    ) -> None:
        self._thread = thread
        self._blobs = blobs
        self._staging = staging
        self._report = report
        self._ended = ended
        self._make_way = make_way
        self._compute: Compute | None = None
        self._context: TaskContext | None = None
        self._unwanted = False
        self._prepared: dict[str, PreparedJob] = {}
        self._wake = asyncio.Event()
        self.leases = Leases()

    async def run(self, start: Callable[[], Compute], usable: asyncio.Event) -> None:
        """Builds the engine (slow imports), then works for ever."""
        self._compute = await self._thread.call(start)
        usable.set()
        while True:
            while held := self.leases.start():
                await self._run(held, self._compute)
            self._wake.clear()
            await self._wake.wait()

    @property
    def engine(self) -> Engine:
        """For `check_weights`, from another thread. There is one as soon as the worker is usable."""
        assert self._compute is not None
        return self._compute.engine

    @property
    def progress(self) -> Progress:
        if self.leases.running is None or self._context is None:
            return Progress()
        return Progress(lease=self.leases.running.lease, done=self._context.done, total=self._context.total)

    def accept(self, assign: Assign) -> None:
        """Queue a lease; one that is held already is not begun twice, one that is done is told again."""
        if self.leases.offer(assign.lease, assign.task):
            self._wake.set()
        elif done := self.leases.outcome(assign.lease):
            self._report(done)

    def revoke(self, lease: str, reason: str) -> None:
        """A waiting lease fails at once, a running one at its next progress report."""
        if self.leases.withdraw(lease):
            error = TaskError(reason="cancelled", message=reason, retry=True)
            self._finish(Outcome(lease=lease, answer=error, receipt=NOTHING_DONE))
        elif self.leases.running and self.leases.running.lease == lease and self._context:
            self._context.revoke(reason)

    def revoke_all(self, reason: str) -> None:
        """What waits is given back, what runs stops at its next progress report."""
        self.leases.clear_waiting()
        if self.leases.running:
            self.revoke(self.leases.running.lease, reason)

    def drop(self, job: str) -> None:
        """The job is over here: nobody wants what runs and waits of it. What is assigned after this is another life."""
        running = self.leases.running
        if running and running.task.job == job:
            self._unwanted = True
            self.revoke(running.lease, "the job is over")
        self.leases.end(job)
        self._prepared.pop(job, None)

    async def unload(self, job: str) -> None:
        """The engine does it as soon as it is free."""
        if self._compute:
            await self._thread.call(partial(self._compute.end, job))

    def prepared(self) -> tuple[PreparedJob, ...]:
        """For the inventory; a generator names the newest incarnation that it has versions of."""
        return tuple(self._with_versions(prepared) for prepared in self._prepared.values())

    def _with_versions(self, prepared: PreparedJob) -> PreparedJob:
        incarnation, versions = self._staging.newest(prepared.job)
        if incarnation < prepared.incarnation:
            return prepared
        return replace(prepared, incarnation=incarnation, staged=versions)

    async def _run(self, held: Held, compute: Compute) -> None:
        task = held.task
        context = self._context = TaskContext(self._blobs)
        self._unwanted = False
        await self._make_way(task.job)
        staged = None
        if isinstance(task, GenerateTask):
            staged = self._staging.get(task.job, task.incarnation, task.version)
        micro_batch, version = getattr(task, "micro_batch", None), getattr(task, "version", None)
        with about(job=task.job, micro_batch=micro_batch, policy_version=version):
            log.debug("begun", task=task.kind, lease=held.lease)
            ran = await self._thread.call(partial(compute.run, task, context, staged))
            log.debug("ended", task=task.kind, lease=held.lease, seconds=ran.receipt.total_ns / 1e9)
        self._context = None
        if self._unwanted:
            context.withdraw()
            self.leases.discard()
        else:
            if ran.prepared:
                self._prepared[ran.prepared.job] = ran.prepared
            self._finish(Outcome(lease=held.lease, answer=ran.answer, receipt=ran.receipt))

    def _finish(self, outcome: Outcome) -> None:
        self.leases.finish(outcome)
        self._ended(outcome)
        self._report(outcome)
