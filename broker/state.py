"""Everything that affects the core lives here; the other modules are functions on it, one noun each.

Iteration is over dicts and lists in insertion order only, never over sets, so that replay repeats every command.
"""

from dataclasses import dataclass, field

from broker.commands import Command, Write
from broker.convened import Convened
from broker.device_health import DeviceHealth
from broker.estimates import Estimate
from broker.holds import Drain, Stop
from broker.microbatch import Fragment, MicroBatch, Phase, Stamp
from broker.queues import Queue
from broker.spec import JobSpec
from broker.step_clock import StepClock
from broker.usage import Usage
from digend.wire.devices import DeviceState
from digend.wire.records import Record, RecordBody
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import CheckpointResult, Prompt, TaskBody
from digend.wire.workers import Hello

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
    full: bool = False
    """It has no room for more tensors than wait there."""
    problem: str = ""
    """What it said is wrong, or waits for, by its last heartbeat."""
    generating: bool = False
    """A trainer's mode: its last task was TAG."""
    offloaded: bool = False
    """A trainer's state was told to leave its device for TAG, and is not known to be back."""
    restored_ns: int = 0
    """It was seen to train again."""
    device: DeviceState | None = None
    health: DeviceHealth = field(default_factory=DeviceHealth)

    @property
    def name(self) -> str:
        return self.hello.name

    @property
    def role(self) -> str:
        return self.hello.role

    @property
    def node(self) -> str:
        return self.hello.node

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
class RankSet:
    """The trainers of a job that act as one, from being asked to meet until one of them is lost or all leave."""

    epoch: int
    members: tuple[str, ...]
    """Names of workers, rank by rank."""
    until_ns: int
    """When whoever has not joined is lost."""
    store: str = ""
    joined: dict[str, None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Who could not join, and why."""

    @property
    def formed(self) -> bool:
        return len(self.joined) == len(self.members)


@dataclass(slots=True, eq=False)
class Job:
    spec: JobSpec
    submitted_ns: int
    user: str = ""
    priority: int = 0
    trainer: str | None = None
    """Its own while it has workers, by name; of several ranks, rank 0."""
    followers: tuple[str, ...] = ()
    """Names of the other ranks, in order."""
    rank_set: RankSet | None = None
    """Of a job with several ranks, while they meet or have met."""
    rank_epoch: int = 0
    broken: str = ""
    """Why its ranks were given up, until it is known whether one of them is lost."""
    form_from_ns: int = 0
    """Until then that is waited for."""
    stop: Stop | None = None
    """It is to leave its workers, and does not yet; of a paused job: why it did."""
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
    adapter_digest: str = ""
    conditions: dict[str, BlobRef] = field(default_factory=dict)
    encoding: dict[str, str] = field(default_factory=dict)
    """prompt uid -> lease"""
    unencoded: list[Prompt] = field(default_factory=list)
    unencoded_of: tuple[int, int, bool] | None = None
    """What `unencoded` was looked for in; None: embeddings were lost since."""
    scored: list[MicroBatch] = field(default_factory=list)
    """fully scored since it was last looked at"""
    members: list[Worker] = field(default_factory=list)
    members_of: tuple[int, str | None, tuple[str, ...]] | None = None
    """What `members` was looked for in (`placement.members`)."""
    barred: list[MicroBatch] = field(default_factory=list)
    """fully scored, behind the barrier of `std = "global"`"""
    retired_of: tuple[Stamp, int, int, bool] | None = None
    """When old versions were last looked for."""
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
    probed_at: int | None = None
    """The global step in which TAG was last measured on one sample."""
    trainer_waits: bool = False
    reset_wanted: bool = False
    published: dict[int, WeightsRef] = field(default_factory=dict)
    broadcast: Convened = field(default_factory=Convened)
    switch_until_ns: int = 0
    """Until then a claim waits for generators that still stage the version of now."""
    evaluation: Evaluation | None = None
    evaluated: dict[tuple[int, int], None] = field(default_factory=dict)
    """(incarnation, global step)"""
    checkpoint: CheckpointResult | None = None
    checkpoint_at: tuple[int, int] = (0, 0)
    """(global step, version) of the newest checkpoint; the base weights at first."""
    checkpoint_node: str = ""
    checkpoint_due: bool = False
    checkpoint_from_ns: int = 0
    """The disk had no room for it: it is tried again from then on."""
    lost: dict[str, str] = field(default_factory=dict)
    """Workers that were lost and are not back: why."""
    num_skipped: int = 0
    """Global steps in a row; `checkpoint_skipped`: as it was at the newest checkpoint."""
    checkpoint_skipped: int = 0
    num_flat: int = 0
    """Global steps in a row of which every group had equal rewards; `told_flat`: that has been said."""
    told_flat: bool = False
    drifted: dict[str, None] = field(default_factory=dict)
    """Workers whose samples came out otherwise at the trainer, as has been said."""
    hold: str = ""
    """Why nothing more is trained until somebody resumes the job."""
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
    def ranks(self) -> tuple[str, ...]:
        """Names of its trainers, rank by rank."""
        return (self.trainer, *self.followers) if self.trainer is not None else ()

    def trains(self, worker: str) -> bool:
        """Whether the worker is one of its ranks."""
        return worker == self.trainer or worker in self.followers

    @property
    def step_start_ns(self) -> int:
        """Of the open global step; 0 before the first."""
        return self.clock.start_ns

    def start_clock(self, now: int) -> None:
        """A global step begins."""
        self.clock = StepClock(start_ns=now, running=True)

    @property
    def active(self) -> bool:
        """It has workers."""
        return self.state in ("preparing", "running", "held")

    @property
    def borrows(self) -> bool:
        """Its newest checkpoint is still that of the job it was forked from."""
        origin = self.spec.origin
        return origin is not None and self.checkpoint is not None and self.checkpoint.path == origin.path

    @property
    def leaving(self) -> bool:
        """The border after which it stops is reached: nothing but its checkpoint is done any more."""
        stop = self.stop
        return stop is not None and stop.after == "global-step" and self.active and self.global_step >= stop.global_step

    @property
    def stamp(self) -> Stamp:
        return (self.incarnation, self.version)

    @property
    def colocated(self) -> bool:
        return self.spec.generators == ()

    def step_batches(self) -> list[MicroBatch]:
        """Micro-batches of the open global step."""
        return [batch for batch in self.rollout if batch.global_step == self.global_step]

    def open_batches(self) -> list[MicroBatch]:
        """Micro-batches of training and of the open evaluation."""
        return self.rollout + (self.evaluation.micro_batches if self.evaluation else [])

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
    roster: int = 0
    """Counts who came and went: what was looked for among all workers holds while it stands."""
    sessions: dict[str, str] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    num_leases: int = 0
    disk_full: str = ""
    drains: dict[str, Drain] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    """Worker time that each user's jobs had lately."""
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

    def active(self) -> list[Job]:
        """Jobs that have workers, oldest first; their pools do not overlap (`placement`)."""
        return [job for job in self.jobs.values() if job.active]

    def drain_of(self, worker: Worker) -> Drain | None:
        """The drain that holds for a worker: of its own name, or of its node."""
        return self.drains.get(worker.name) or self.drains.get(worker.node) if self.drains else None

    def by_session(self, session: str) -> Worker | None:
        worker = self.workers.get(self.sessions.get(session, ""))
        return worker if worker is not None and worker.session == session else None

    def live_instances(self) -> dict[str, Worker]:
        return {worker.hello.instance: worker for worker in self.workers.values()}
