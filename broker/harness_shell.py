"""The shell of a simulated worker: session, leases, results that wait for their acknowledgement.

Behaves as the worker daemon does, in virtual time: one task at a time in the order of assignment; a revoked task fails
as cancelled; an evicted worker says HELLO again with what it holds. Must not know the core.
"""

from dataclasses import dataclass, replace

from broker.commands import (
    AcknowledgeResult,
    AskJoin,
    AskLeave,
    AskStore,
    Command,
    End,
    Evict,
    Free,
    RetireVersions,
    RevokeLease,
    SendTask,
    StageWeights,
)
from broker.events import (
    RankBroke,
    RankReady,
    StoreReady,
    TaskBroke,
    TaskFinished,
    WorkerBeat,
)
from broker.harness_engine import NUM_TENSORS, Engine, inputs
from broker.harness_host import Host
from broker.harness_intake import Intake
from broker.harness_ranks import NOTICE_NS, Seat
from broker.harness_world import InvariantBroken, Pair
from digend.wire.devices import DeviceState
from digend.wire.tasks import OFFLOAD, RESTORE, Receipt, ResultBody, TaskBody, TaskError
from digend.wire.workers import HeldLease, Hello, Versions

RESEND_NS = 5_000_000_000
HELLO_NS = 500_000_000
"""How long after a lost session a worker says HELLO."""


@dataclass(slots=True, eq=False)
class Running:
    """A task whose inputs were pulled when it began; it ends when `left_ns` have passed from `since_ns`."""

    order: SendTask
    start_ns: int
    since_ns: int
    left_ns: int
    answer: ResultBody | TaskError
    pairs: tuple[Pair, ...] = ()
    stages: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, eq=False)
class Outcome:
    order: SendTask
    answer: ResultBody | TaskError
    receipt: Receipt
    sent_ns: int = -RESEND_NS


class Shell:
    """One process from HELLO to death. `frozen`: stopped. `cut`: what it says and hears waits, its tasks go on.

    `device`: what its heartbeats say of its GPU; whoever simulates sets it.
    """

    def __init__(self, host: Host, engine: Engine) -> None:
        self.host, self.engine = host, engine
        self.session: str | None = None
        self.alive, self.frozen, self.cut = True, False, False
        self.inbox: list[Command] = []
        self.waiting: list[SendTask] = []
        self.running: Running | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.beat_ns = 0
        self.device: DeviceState | None = None
        self.full = False
        self.seat = Seat(self)
        self.intake = Intake(self)

    @property
    def name(self) -> str:
        return self.engine.slot.name

    @property
    def reachable(self) -> bool:
        return self.alive and not self.frozen and not self.cut

    # ----------------------------------------------------------------------------------------- session

    def hello(self) -> Hello:
        slot = self.engine.slot
        begun = [self.running.order] if self.running else []
        return Hello(
            role=slot.role,
            name=slot.name,
            node=slot.name.split("/")[0],
            instance=self.engine.instance,
            pid=1,
            data=f"inproc://{self.engine.instance}",
            device=slot.device,
            versions=Versions(digend="0", python="3", numbers=dict(slot.numbers)),
            held=tuple(HeldLease(lease=order.lease, done=False) for order in begun + self.waiting)
            + tuple(HeldLease(lease=lease, done=True) for lease in self.outcomes),
            prepared=self.engine.inventory(),
            host=slot.host,
            interface=slot.interface,
            ranks=self.seat.inventory,
        )

    def greet(self) -> None:
        """Say HELLO, unless there is a session; then tell what earlier sessions did not acknowledge."""
        if self.session is not None or not self.reachable:
            return
        self.session = self.host.greet(self)
        if self.session is None:
            return
        self.beat_ns = self.host.now_ns
        self._tell_all()

    def _tell_all(self) -> None:
        for outcome in self.outcomes.values():
            self._tell(outcome)
        for job, incarnation, version in self.engine.staged:
            self.intake.say_staged(job, incarnation, version, NUM_TENSORS)
        self.seat.tell_again()

    def leave(self) -> None:
        """There is no session any more: say HELLO again soon."""
        self.session = None
        self.host.at(self.host.now_ns + HELLO_NS, self.greet)

    def beat(self) -> WorkerBeat | None:
        """A heartbeat; results without acknowledgement are told again."""
        if self.session is None or not self.reachable:
            return None
        if not self.host.is_open(self.session):
            self.leave()
            return None
        self.beat_ns = self.host.now_ns
        for outcome in self.outcomes.values():
            if self.host.now_ns - outcome.sent_ns >= RESEND_NS:
                self._tell(outcome)
        if self.running is None:
            return WorkerBeat(session=self.session, lease=None, done=0, device=self.device, full=self.full)
        lease, done = self.running.order.lease, self._progress_ns(self.running)
        return WorkerBeat(session=self.session, lease=lease, done=done, device=self.device, full=self.full)

    def _progress_ns(self, running: Running) -> int:
        return self.host.now_ns - running.start_ns

    def _tell(self, outcome: Outcome) -> None:
        if self.session is None or not self.reachable:
            return
        outcome.sent_ns = self.host.now_ns
        lease, receipt, answer = outcome.order.lease, outcome.receipt, outcome.answer
        if isinstance(answer, TaskError):
            self.host.say(TaskBroke(session=self.session, lease=lease, error=answer, receipt=receipt))
        else:
            self.host.say(TaskFinished(session=self.session, lease=lease, result=answer, receipt=receipt))

    # ------------------------------------------------------------------------------------------ faults

    def die(self) -> None:
        self.alive = False
        self.seat.die()
        self.engine.world.blobs.pop(self.engine.instance, None)

    def freeze(self) -> None:
        self.frozen = True
        if self.running is not None:
            self.running.left_ns -= self.host.now_ns - self.running.since_ns

    def thaw(self) -> None:
        """Go on where it stood still; then hear what was said meanwhile."""
        self.frozen = False
        if self.running is not None:
            self.running.since_ns = self.host.now_ns
            self._schedule(self.running)
        self.hear()

    def hear(self) -> None:
        """Obey what came while nothing could be heard, and greet a driver that has no session for us."""
        if not self.reachable:
            return
        inbox, self.inbox = self.inbox, []
        for command in inbox:
            self.obey(command)
        if self.session is None or not self.host.is_open(self.session):
            self.leave()
        else:
            self._tell_all()

    # ---------------------------------------------------------------------------------------- commands

    def receive(self, command: Command) -> None:
        if self.reachable:
            self.obey(command)
        elif self.alive:
            self.inbox.append(command)

    def obey(self, command: Command) -> None:
        match command:
            case SendTask():
                self.waiting.append(command)
                self._begin()
            case RevokeLease(lease=lease, reason=reason):
                self._revoke(lease, reason)
            case AcknowledgeResult(lease=lease):
                self.outcomes.pop(lease, None)
            case StageWeights(weights=weights, broadcast=place):
                self.intake.begin(weights, place)
            case RetireVersions(job=job, oldest_version=oldest):
                staged = self.engine.staged
                self.engine.staged = {key: staged[key] for key in staged if key[0] != job or key[2] >= oldest}
            case Free(blobs=blobs):
                for blob in blobs:
                    self.engine.world.free(self.engine.instance, blob)
            case End(job=job):
                self._end_job(job)
            case AskStore(job=job, epoch=epoch):
                self.seat.open(job, epoch)
            case AskJoin(job=job, ranks=ranks):
                self.seat.join(job, ranks)
            case AskLeave():
                self.seat.leave()
            case Evict(fatal=fatal):
                self._evicted(fatal)

    def _evicted(self, fatal: bool) -> None:
        if fatal:
            self.die()
            return
        self.waiting.clear()
        self.seat.leave()
        if self.running is not None:
            self._revoke(self.running.order.lease, "evicted")
        self.leave()

    def _end_job(self, job: str) -> None:
        """Results are told on: the driver frees what they name."""
        self.waiting = [order for order in self.waiting if order.task.job != job]
        if self.running is not None and self.running.order.task.job == job:
            self._stop(self.running)
        self.engine.unload(job)
        self._begin()

    # ------------------------------------------------------------------------------------------- tasks

    def _begin(self) -> None:
        if self.running is not None or not self.waiting:
            return
        order = self.waiting.pop(0)
        task, now_ns = order.task, self.host.now_ns
        if self.engine.slot.role == "trainer" and not self.seat.may_run(self.host.ranks_of(task.job)):
            raise InvariantBroken(f"{self.name} is to {task.kind}, and is not rank 0 of all ranks of {task.job}")
        missing = next((ref for ref in inputs(task) if self.engine.world.find(ref) is None), None)
        if missing is not None:
            error = TaskError(reason="blob_lost", message=f"{missing.owner} has no {missing.id}", retry=True)
            self.running = Running(order, now_ns, now_ns, 0, error)
        else:
            pairs, answer = self.engine.pairs(task), self.engine.perform(task)
            stages = self._switch(task)
            left_ns = sum(ns for _, ns in stages) + self.host.task_ns(self, task)
            self.running = Running(order, now_ns, now_ns, left_ns, answer, pairs, stages)
        self._schedule(self.running)

    def _switch(self, task: TaskBody) -> tuple[tuple[str, int], ...]:
        """The stage at the front of a task that needs the trainer's other mode."""
        switch_ns = self.host.switch_ns(self, task)
        return () if switch_ns is None else ((OFFLOAD if task.kind == "generate" else RESTORE, switch_ns),)

    def _schedule(self, running: Running) -> None:
        since_ns = running.since_ns

        def finish() -> None:
            if self.alive and not self.frozen and self.running is running and running.since_ns == since_ns:
                self._finish(running)

        self.host.at(self.host.now_ns + running.left_ns, finish)

    def _finish(self, running: Running) -> None:
        answer, task = running.answer, running.order.task
        together = self.seat.others_answer()
        if together is None:
            self._wait_for_ranks(running)
            return
        if not together:
            self.abort(TaskError(reason="rank_lost", message="a rank is gone", retry=True))
            return
        if not isinstance(answer, TaskError):
            answer = self.host.answer_of(self, task, answer)
            if isinstance(answer, TaskError):
                self._drop(running)
            else:
                self.engine.adopt(task, running.pairs, answer)
        self._close(running, answer)

    def _wait_for_ranks(self, running: Running) -> None:
        """One of them stands still: look again, until their time limit has passed."""
        place, late_ns = self.seat.place, self.host.now_ns - running.since_ns - running.left_ns
        if place is not None and late_ns >= place.timeout_s * 1e9:
            self.abort(TaskError(reason="rank_lost", message="a rank did not answer", retry=True))
            return

        def look() -> None:
            if self.alive and not self.frozen and self.running is running:
                self._finish(running)

        self.host.at(self.host.now_ns + NOTICE_NS, look)

    def abort(self, error: TaskError) -> None:
        """What runs comes to nothing, because the ranks are broken."""
        if self.running is not None:
            self._drop(self.running)
            self._close(self.running, error)

    def tell_of_ranks(self, news: StoreReady | RankReady | RankBroke) -> None:
        if self.session is not None and self.reachable:
            self.host.say(replace(news, session=self.session))

    def _close(self, running: Running, answer: ResultBody | TaskError) -> None:
        num_samples = len(inputs(running.order.task)) if running.order.task.kind == "score" else 0
        if not isinstance(answer, TaskError):
            num_samples = getattr(answer, "num_samples", num_samples)
        total_ns, stages = self.host.now_ns - running.start_ns, running.stages
        told = stages if sum(ns for _, ns in stages) <= total_ns else ()
        receipt = Receipt(total_ns=total_ns, stages=told, num_samples=num_samples)
        self.running = None
        outcome = self.outcomes[running.order.lease] = Outcome(running.order, answer, receipt)
        self._tell(outcome)
        self._begin()

    def _drop(self, running: Running) -> None:
        if not isinstance(running.answer, TaskError):
            self.engine.drop(running.answer)

    def _stop(self, running: Running) -> None:
        self._drop(running)
        self.running = None

    def _revoke(self, lease: str, reason: str) -> None:
        """What waits or runs fails as cancelled; what is done is told all the same."""
        error = TaskError(reason="cancelled", message=reason, retry=True)
        for order in [order for order in self.waiting if order.lease == lease]:
            self.waiting.remove(order)
            self.outcomes[lease] = Outcome(order, error, Receipt(total_ns=0, stages=()))
            self._tell(self.outcomes[lease])
        if self.running is not None and self.running.order.lease == lease:
            self._drop(self.running)
            self._close(self.running, error)
