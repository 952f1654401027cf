"""A whole cluster in virtual time around the real core: simulated workers, exact durations, faults on demand.

A product as much as a test bench: whoever wants to know what the core would do builds a `Simulation`. Owns virtual
time, the order of what happens in it, and the journal (`batches`) that a fresh core must answer in the same way. No
clock, no sleep, no socket, no chance: equal simulations give equal batches (docs/scheduling.md).

Invariant: at one instant everything that ends is told to the core in one batch; what the core's commands bring about at
the same instant is told in a later one. Heartbeats precede the other events of a batch.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush

from broker.commands import Command, Evict, SendTask, WakeAt, Write
from broker.core import Core
from broker.events import (
    CancelRequested,
    DiskState,
    DriverStarted,
    Event,
    JobSubmitted,
    RecordsPersisted,
    Request,
    Tick,
    WorkerGone,
    WorkerHello,
)
from broker.harness_driver import Batch, DriverLife, replay
from broker.harness_engine import NUM_TENSORS, Engine, Scorer, Slot, honest, inputs
from broker.harness_shell import Shell
from broker.harness_times import Durations, Load
from broker.harness_world import InvariantBroken, World
from broker.spec import JobSpec
from broker.state import SECOND, Job
from digend.wire.records import Record
from digend.wire.refs import WeightsRef
from digend.wire.tasks import GenerateTask, ResultBody, ScoreTask, TaskBody, TaskError

BEAT_NS = SECOND

Tamper = Callable[[Shell, TaskBody, ResultBody], ResultBody | TaskError]
StageTamper = Callable[[Shell, WeightsRef], int | TaskError]
Courier = Callable[[int, Event], Iterable[tuple[int, Event]]]


class Simulation:
    """A driver and its workers. Build it, `submit` jobs, then `run` (or `step`) and break things in between.

    `slots`: workers that connect at once. `scorer`: the reward. `tamper` may turn a task's result into another or into
    an error; `stage_tamper` says what staging comes to (number of bound tensors, or an error); `courier` says when each
    message of a worker arrives, if at all, and how often. `persist_ns`: how long the recorder takes (None: there is
    none).
    """

    def __init__(
        self,
        durations: Durations,
        slots: Sequence[Slot],
        *,
        scorer: Scorer = honest,
        tamper: Tamper = lambda shell, task, result: result,
        stage_tamper: StageTamper = lambda shell, weights: NUM_TENSORS,
        courier: Courier = lambda now_ns, event: ((now_ns, event),),
        persist_ns: int | None = None,
        torpid_s: float = 4.0,
        lost_s: float = 15.0,
        rejoin_s: float = 20.0,
    ) -> None:
        self.durations, self.scorer, self.persist_ns = durations, scorer, persist_ns
        self.tamper, self.stage_tamper, self.courier = tamper, stage_tamper, courier
        self._slots = tuple(slots)
        self._disk_full = False
        self._limits = (torpid_s, lost_s, rejoin_s)
        self.now_ns = 0
        self.core, self.world = Core(), World()
        self.batches: list[Batch] = []
        self.records: dict[str, list[Record]] = {}
        self.shells: dict[str, Shell] = {}
        self._specs: dict[str, JobSpec] = {}
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._events: list[Event] = []
        self._sessions: dict[str, Shell] = {}
        self._num_actions = self._num_lives = self._num_sessions = 0
        self._wake_ns: int | None = None
        self._driver = DriverLife()
        self._pools: dict[tuple[str, ...] | None, Fraction] = {}
        self._persisting: set[str] = set()
        self._start_driver()
        for slot in slots:
            self.connect(slot)

    # ------------------------------------------------------------------------------------ what happens

    def submit(self, spec: JobSpec, user: str = "", priority: int = 0) -> None:
        self._specs.setdefault(spec.id, spec)
        self.ask(JobSubmitted(spec=spec, user=user, priority=priority))

    def ask(self, request: Request) -> None:
        """What a client asks: of a driver that is down again and again."""
        self._tell(request)

    def cancel(self, job: str) -> None:
        self.ask(CancelRequested(job=job))

    def disk(self, *, full: bool) -> None:
        self._disk_full = full
        if self._driver.up:
            self._tell(DiskState(full=full, reason="no space left" if full else ""))

    def persisted(self, job: str, next_seq: int | None = None) -> None:
        """The recorder has written everything below `next_seq` (None: everything so far)."""
        written = len(self.records.get(job, ())) if next_seq is None else next_seq
        self._tell(RecordsPersisted(job=job, next_seq=written))

    def at(self, at_ns: int, action: Callable[[], None]) -> None:
        """Do something at an instant (not before now), in order of registration."""
        self._num_actions += 1
        heappush(self._agenda, (max(at_ns, self.now_ns), self._num_actions, action))

    def connect(self, slot: Slot) -> None:
        """A new process in a slot says HELLO now."""
        self._num_lives += 1
        instance = f"{slot.name}#{self._num_lives}"
        self.world.blobs[instance] = {}
        engine = Engine(slot, instance, self.world, self.scorer, self.durations.scores_at_once())
        shell = self.shells[slot.name] = Shell(self, engine)
        self.at(self.now_ns, shell.greet)

    def kill(self, name: str, back_ns: int | None = None, *, noticed: bool = True) -> None:
        """kill -9; a new process after `back_ns` (None: never). `noticed`: the driver sees the connection end."""
        shell = self.shells[name]
        if not shell.alive:
            return
        shell.die()
        if noticed and shell.session is not None:
            self._tell(WorkerGone(session=shell.session, reason="its connection was refused"))
        if back_ns is not None:
            self.at(self.now_ns + back_ns, lambda: self.connect(shell.engine.slot))

    def freeze(self, name: str, for_ns: int) -> None:
        """SIGSTOP, and SIGCONT after `for_ns`: the process stands still and its messages wait."""
        shell = self.shells[name]
        shell.freeze()
        self.at(self.now_ns + for_ns, shell.thaw)

    def cut(self, name: str, for_ns: int) -> None:
        """The network between the worker and the driver carries nothing for a while; the worker goes on."""
        shell = self.shells[name]
        shell.cut = True

        def mend() -> None:
            shell.cut = False
            shell.hear()

        self.at(self.now_ns + for_ns, mend)

    def restart_driver(self, down_ns: int = SECOND, *, unreleased: bool = False) -> None:
        """kill -9 of the driver, and a new one after `down_ns` that replays the journal and waits for HELLOs.

        `unreleased`: it dies once its next step is journalled, before any of that step's commands is sent.
        """
        self._driver.down_ns = down_ns
        self._driver.dies_next = unreleased
        if not unreleased:
            self._stop_driver()

    # ---------------------------------------------------------------------------------------- running

    def run(self, until: Callable[[], bool] | None = None, limit_ns: int = 10**15) -> None:
        """Until every submitted job has ended (or `until` holds). Raises TimeoutError where virtual time passes the
        limit: a job that is stuck ends so, because heartbeats go on for ever."""
        done = until or self.ended
        while not done():
            if not self.step() or self.now_ns > limit_ns:
                raise TimeoutError(f"not done at {self.now_ns / SECOND} s: {self.describe()}")

    def step(self) -> bool:
        """The next batch: everything of the next instant. False where nothing will ever happen."""
        while (next_ns := self._next_ns()) is not None:
            self.now_ns = max(self.now_ns, next_ns)
            while self._agenda and self._agenda[0][0] <= self.now_ns:
                heappop(self._agenda)[2]()
            due = self._wake_ns is not None and self._wake_ns <= self.now_ns
            if self._driver.up and (self._events or due):
                self._batch(due)
                return True
        return False

    def settle(self) -> None:
        """Let everything that is on its way arrive; deadlines of the core are left alone."""
        while self._agenda or self._events:
            self.step()

    def ended(self) -> bool:
        """Whether every job that was submitted is over, and the driver knows."""
        jobs = self.core.state.jobs
        return self._driver.up and all(name in jobs and not jobs[name].open for name in self._specs)

    @property
    def driver_up(self) -> bool:
        return self._driver.up

    def job(self, name: str) -> Job:
        return self.core.state.jobs[name]

    def replay(self) -> int | None:
        """The first batch that a fresh core answers otherwise; None where all are the same."""
        return replay(Core(), self.batches)

    def describe(self) -> str:
        """The jobs, and who does what, for messages."""
        state = self.core.state
        jobs = [f"{job.id} {job.state} {job.reason!r} global step {job.global_step}" for job in state.jobs.values()]
        doing = [
            f"{worker.name}: {state.leases[worker.lease].label if worker.lease else worker.idle_cause}"
            for worker in state.workers.values()
        ]
        return "; ".join(jobs + doing)

    # ----------------------------------------------------------------------------------------- driver

    def _next_ns(self) -> int | None:
        if self._events:
            return self.now_ns
        times = [self._agenda[0][0]] if self._agenda else []
        times += [self._wake_ns] if self._wake_ns is not None else []
        return min(times, default=None)

    def _batch(self, due: bool) -> None:
        beats = [self.shells[name].beat() for name in self._sleepers()]
        events = (*(beat for beat in beats if beat), *self._events, *((Tick(),) if due else ()))
        self._events = []
        self._wake_ns = None if due else self._wake_ns
        commands = tuple(self.core.step(self.now_ns, events))
        self.batches.append(Batch(now_ns=self.now_ns, events=events, commands=commands))
        for command in commands:
            self._carry_out(command)
        if self._driver.dies_next:
            self._stop_driver()

    def _sleepers(self) -> list[str]:
        return [name for name, shell in self.shells.items() if self.now_ns - shell.beat_ns >= BEAT_NS]

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Write):
            self._write(command.record)
        elif self._driver.dies_next:
            return
        elif isinstance(command, WakeAt):
            if command.at_ns <= self.now_ns:
                raise InvariantBroken(f"{command} at {self.now_ns}")
            self._wake_ns = command.at_ns
        else:
            if isinstance(command, SendTask):
                self._check_inputs(command.task)
            shell = self._sessions.get(command.session)
            if isinstance(command, Evict):
                self._sessions.pop(command.session, None)
            if shell is not None and shell.session == command.session:
                shell.receive(command)

    def _check_inputs(self, task: TaskBody) -> None:
        for ref in inputs(task):
            if ref.id in self.world.freed:
                raise InvariantBroken(f"{task.kind} is to use {ref.id} of {ref.owner}, which was freed")

    def _write(self, record: Record) -> None:
        written = self.records.setdefault(record.job, [])
        if record.seq != len(written):
            raise InvariantBroken(f"record {record.seq} of {record.job} comes after {len(written) - 1}")
        written.append(record)
        if self.persist_ns is not None and record.job not in self._persisting:
            self._persisting.add(record.job)
            self.at(self.now_ns + self.persist_ns, lambda: self._persist(record.job))

    def _persist(self, job: str) -> None:
        self._persisting.discard(job)
        self.persisted(job)

    def _start_driver(self) -> None:
        self._driver = DriverLife(epoch=self._driver.epoch + 1, up=True)
        torpid_s, lost_s, rejoin_s = self._limits
        started = DriverStarted(epoch=self._driver.epoch, torpid_s=torpid_s, lost_s=lost_s, rejoin_s=rejoin_s)
        self._events = [started]
        if self._disk_full:
            self.disk(full=True)

    def _stop_driver(self) -> None:
        self._driver.up, self._driver.dies_next, self._wake_ns = False, False, None
        unheard, self._events = self._events, []
        for event in unheard:
            self._tell(event)
        self._sessions.clear()
        for shell in self.shells.values():
            shell.session = None
        self.at(self.now_ns + self._driver.down_ns, self._replay_and_start)

    def _replay_and_start(self) -> None:
        """A new driver knows what the journal says, and nothing else."""
        self.core = Core()
        different = replay(self.core, self.batches)
        if different is not None:
            raise InvariantBroken(f"batch {different} is answered otherwise in replay")
        self._start_driver()
        for shell in self.shells.values():
            if shell.reachable:
                shell.leave()

    def _tell(self, event: Event) -> None:
        """An event for the next batch. While the driver is down, clients try again and workers' words are lost."""
        if self._driver.up:
            self._events.append(event)
        elif isinstance(event, Request | RecordsPersisted):
            self.at(self.now_ns + SECOND, lambda: self._tell(event))

    # ----------------------------------------------------------------------------- for the shells (Host)

    def say(self, event: Event) -> None:
        for at_ns, message in self.courier(self.now_ns, event):
            if at_ns <= self.now_ns:
                self._tell(message)
            else:
                self.at(at_ns, lambda message=message: self._tell(message))  # type: ignore[misc]

    def greet(self, shell: Shell) -> str | None:
        if not self._driver.up:
            return None
        self._num_sessions += 1
        session = f"s{self._driver.epoch}.{self._num_sessions}"
        self._sessions[session] = shell
        self._tell(WorkerHello(session=session, hello=shell.hello()))
        return session

    def is_open(self, session: str) -> bool:
        return session in self._sessions

    def task_ns(self, shell: Shell, task: TaskBody) -> int:
        load = Load(share=self._share(task), speed=self._speed(shell, task))
        return self.durations.task_ns(task, load)

    def switch_ns(self, shell: Shell, task: TaskBody) -> int | None:
        return self.durations.switch_ns() if shell.engine.switches(task) else None

    def stage_ns(self) -> int:
        return self.durations.stage_ns()

    def ranks_of(self, job: str) -> int:
        return self._specs[job].ranks

    def answer_of(self, shell: Shell, task: TaskBody, result: ResultBody) -> ResultBody | TaskError:
        return self.tamper(shell, task, result)

    def bound_of(self, shell: Shell, weights: WeightsRef) -> int | TaskError:
        return self.stage_tamper(shell, weights)

    def _share(self, task: TaskBody) -> Fraction:
        """Part of a full micro-batch (or of an evaluated prompt) that a task is."""
        if isinstance(task, GenerateTask):
            num = sum(len(group.samples) for group in task.groups)
        elif isinstance(task, ScoreTask):
            num = len(task.items)
        else:
            return Fraction(1)
        spec = self._specs[task.job]
        if task.purpose == "evaluate":
            return Fraction(num, spec.evaluation.samples)
        groups = min(spec.prompts_per_rollout, spec.micro_batch_groups)
        if spec.partition == "naive":
            groups = -(-spec.prompts_per_rollout // spec.num_micro_batches)
        return Fraction(num, groups * spec.samples_per_prompt)

    def _speed(self, shell: Shell, task: TaskBody) -> Fraction:
        """Relative to the speed of the pool that the simulation began with: who comes or goes changes no worker."""
        if shell.engine.slot.role != "generator":
            return Fraction(1)
        return shell.engine.slot.speed / self._pool_speed(self._specs[task.job].generators)

    def _pool_speed(self, allowed: tuple[str, ...] | None) -> Fraction:
        if allowed not in self._pools:
            pool = [slot for slot in self._slots if slot.role == "generator"]
            self._pools[allowed] = sum(
                (slot.speed for slot in pool if allowed is None or slot.name in allowed), Fraction(0)
            ) or Fraction(1)
        return self._pools[allowed]
