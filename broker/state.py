"""Everything that affects the core lives here; the other modules are functions on it, one noun each.

Iteration is over dicts and lists in insertion order only, never over sets, so that replay repeats every command.
"""

from dataclasses import dataclass, field

from broker.commands import Command, Write
from broker.device_health import DeviceHealth
from broker.estimates import Estimate
from broker.microbatch import Fragment, MicroBatch, Phase, Stamp
from broker.queues import Queue
from broker.spec import JobSpec
from broker.step_clock import StepClock
from digend.wire.devices import DeviceState
from digend.wire.messages import Hello
from digend.wire.records import Record, RecordBody
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import CheckpointResult, Prompt, TaskBody

SECOND = 1_000_000_000


@dataclass(slots=True, eq=False)
class Worker:
    """A process's life. `session` is None while the driver waits for its HELLO after a restart."""

    hello: Hello
    session: str | None
    beat_ns: int
    torpid: bool = False
    lease: str | None = None
    prepared: dict[str, int] = field(default_factory=dict)
    staged: dict[tuple[str, Stamp], None] = field(default_factory=dict)
    staging: dict[tuple[str, Stamp], int] = field(default_factory=dict)
    """Asked to stage, and when."""
    stage_from_ns: int = 0
    """Staging failed: it is tried again from then on."""
    retired: tuple[str, Stamp] | None = None
    idle_since: int | None = None
    idle_cause: str = ""
    idle_bubble: bool = False
    num_tasks: int = 0
    generation: Estimate = field(default_factory=Estimate)
    tasks: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    """(job, kind of task): how long one takes, for the strategies that plan."""
    generating: bool = False
    """A trainer's mode: its last task was TAG."""
    device: DeviceState | None = None
    health: DeviceHealth = field(default_factory=DeviceHealth)

    @property
    def name(self) -> str:
        return self.hello.name

    @property
    def role(self) -> str:
        return self.hello.role

    @property
    def able(self) -> bool:
        lost = self.device is not None and self.device.status == "lost"
        return self.session is not None and not self.torpid and not lost

    @property
    def free(self) -> bool:
        return self.able and self.lease is None

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """All that is known of its speed: a change of its GPU's clock concerns every one."""
        return (self.generation, *self.tasks.values())


@dataclass(slots=True, eq=False)
class Lease:
    """A right to a task until no progress is made for `lease_s`."""

    id: str
    worker: str
    instance: str
    job: str
    label: str
    task: TaskBody
    start_ns: int
    progress_ns: int
    lease_ns: int
    done: int = -1
    micro_batch: MicroBatch | None = None
    fragment: Fragment | None = None


@dataclass(slots=True, eq=False)
class Evaluation:
    """A named pause: `micro_batches` of one prompt each, pinned to the version of its start."""

    label: str
    global_step: int
    stamp: Stamp
    start_ns: int
    micro_batches: list[MicroBatch]
    unclaimed: list[MicroBatch]
    components: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Job:
    spec: JobSpec
    submitted_ns: int
    state: str = "queued"
    reason: str = ""
    started_ns: int | None = None
    finished_ns: int | None = None
    next_record: int = 0
    incarnation: int = 0
    version: int = 0
    global_step: int = 0
    clock: StepClock = field(default_factory=StepClock)
    peak_flops: dict[str, float] = field(default_factory=dict)
    """Operations a second each worker's device could do, where that is known."""
    sigmas: tuple[float, ...] = ()
    eval_sigmas: tuple[float, ...] = ()
    base_digest: str = ""
    conditions: dict[str, BlobRef] = field(default_factory=dict)
    encoding: dict[str, str] = field(default_factory=dict)
    """prompt uid -> lease"""
    unencoded: list[Prompt] = field(default_factory=list)
    unencoded_of: tuple[int, int, bool] | None = None
    """What `unencoded` was looked for in; None: embeddings were lost since."""
    scored: list[MicroBatch] = field(default_factory=list)
    """fully scored since it was last looked at"""
    barred: list[MicroBatch] = field(default_factory=list)
    """fully scored, behind the barrier of `std = "global"`"""
    retired_of: tuple[Stamp, int, int, bool] | None = None
    """When old versions were last looked for."""
    """Prompts that are about to be used and are neither encoded nor being so; made anew before every dispatch."""
    rollout: list[MicroBatch] = field(default_factory=list)
    rollout_stamp: Stamp = (0, 0)
    at_border: bool = True
    """Between two rollouts: an evaluation may be due, and nothing is claimed until that is settled."""
    unclaimed: list[MicroBatch] = field(default_factory=list)
    waiting: list[tuple[MicroBatch, Fragment]] = field(default_factory=list)
    """fragments dealt and not yet leased"""
    sq: Queue[tuple[MicroBatch, Fragment]] = field(default_factory=Queue)
    uq: Queue[MicroBatch] = field(default_factory=Queue)
    assisted: int = 0
    assisted_at: int | None = None
    """The global step of the last TAG."""
    trainer_waits: bool = False
    reset_wanted: bool = False
    published: dict[int, WeightsRef] = field(default_factory=dict)
    switch_until_ns: int = 0
    """Until then a claim waits for generators that still stage the version of now."""
    evaluation: Evaluation | None = None
    evaluated: dict[tuple[int, int], None] = field(default_factory=dict)
    """(incarnation, global step)"""
    checkpoint: CheckpointResult | None = None
    checkpoint_at: tuple[int, int] = (0, 0)
    """(global step, version) of the newest checkpoint; the base weights at first."""
    checkpoint_due: bool = False
    checkpoint_from_ns: int = 0
    """The disk had no room for it: it is tried again from then on."""
    lost: dict[str, str] = field(default_factory=dict)
    """Workers that were lost and are not back: why."""
    num_skipped: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    reward_mean: float | None = None
    bubble_ns: int = 0
    worker_ns: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def open(self) -> bool:
        return self.state not in ("completed", "failed", "cancelled")

    @property
    def step_start_ns(self) -> int:
        """Of the open global step; 0 before the first."""
        return self.clock.start_ns

    def start_clock(self, now: int) -> None:
        """A global step begins."""
        self.clock = StepClock(start_ns=now, running=True)

    @property
    def stamp(self) -> Stamp:
        return (self.incarnation, self.version)

    @property
    def colocated(self) -> bool:
        return self.spec.generators == ()

    def step_batches(self) -> list[MicroBatch]:
        """Micro-batches of the open global step."""
        return [batch for batch in self.rollout if batch.global_step == self.global_step]

    def applied(self) -> tuple[int, ...]:
        """What the trainer has accumulated since its last commit."""
        return tuple(
            batch.index
            for batch in self.rollout
            if batch.global_step == self.global_step and batch.phase is Phase.APPLIED and batch.update is not None
        )

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by


@dataclass(frozen=True, slots=True)
class Kept:
    """Blobs of an evaluation that the recorder has not yet drawn."""

    job: str
    seq: int
    refs: tuple[BlobRef, ...]


@dataclass(slots=True)
class State:
    now: int = 0
    epoch: int = 0
    torpid_ns: int = 4 * SECOND
    lost_ns: int = 15 * SECOND
    rejoin_ns: int = 20 * SECOND
    workers: dict[str, Worker] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    num_leases: int = 0
    disk_full: str = ""
    kept: list[Kept] = field(default_factory=list)
    owed: dict[str, list[str]] = field(default_factory=dict)
    """instance -> blobs to be freed when it is back"""
    told: dict[str, list[str]] = field(default_factory=dict)
    """instance -> blobs freed in this step; `unsure`: in the one before"""
    unsure: dict[str, list[str]] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """worker -> its newest instance"""
    out: list[Command] = field(default_factory=list)
    wake_at: int | None = None

    def record(self, job: Job, body: RecordBody) -> int:
        """Append to the job's stream; returns the record's number."""
        seq = job.next_record
        job.next_record += 1
        self.out.append(Write(record=Record(job=job.id, seq=seq, at_ns=self.now, body=body)))
        return seq

    def active(self) -> Job | None:
        """Jobs run first in, first out, one at a time."""
        return next((job for job in self.jobs.values() if job.open), None)

    def trainer(self) -> Worker | None:
        return next((worker for worker in self.workers.values() if worker.role == "trainer"), None)

    def by_session(self, session: str) -> Worker | None:
        worker = self.workers.get(self.sessions.get(session, ""))
        return worker if worker is not None and worker.session == session else None

    def live_instances(self) -> dict[str, Worker]:
        return {worker.hello.instance: worker for worker in self.workers.values()}
