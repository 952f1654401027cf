"""What clients see. `digenctl --json` prints these with `schema_version`; a field is never renamed within one."""

from dataclasses import dataclass, field

from digend.wire.devices import DeviceState

SCHEMA_VERSION = 1

CLEAR_DATA = "clear data"
"""Traffic of a worker whose tensors go in the clear over a trusted fabric; all else is encrypted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    driver: str
    protocol: int
    python: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverView:
    """The driver's process and where it keeps things, on its own box. `node` is its name in node files."""

    node: str
    host: str
    pid: int
    now_ns: int
    wall_ns: int
    """The box's clock; `now_ns` is ahead of it after it was set back."""
    journal: str
    state: str
    runs: str
    free_bytes: dict[str, int]
    """Of the disks of journal, state and runs; those that can be read."""
    by_systemd: bool
    """Its log goes to systemd's journal, not to `state`/logs."""
    turned_away: tuple[str, ...] = ()
    """Who did not get in lately, in words: unlisted keys, handshakes that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One line of `digenctl jobs`. `reason` says what a job that does not run waits for."""

    id: str
    name: str
    state: str
    reason: str
    global_step: int
    num_global_steps: int
    policy_version: int
    incarnation: int
    reward: float | None
    submitted_ns: int
    started_ns: int | None
    finished_ns: int | None
    user: str = ""
    priority: int = 0
    parent: str = ""
    """Of a fork: the job whose checkpoint it started from, and of which global step."""
    parent_step: int = 0
    ranks: int = 1
    """Trainers that train it as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    label: str
    global_step: int
    version: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """`digenctl show job`, also `runs/ID/summary.json`. Seconds by worker and stage sum to wall time x workers;
    `staging_seconds`: of these, by worker, those in which it staged a policy version in the background."""

    job: JobView
    seconds: float
    evaluations: tuple[EvaluationView, ...]
    last_step: dict[str, float]
    stage_seconds: dict[str, dict[str, float]]
    counters: dict[str, int]
    checkpoint: str | None
    pipeline: str | None
    num_records: int
    staging_seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One worker. State: idle, busy, draining, drained, torpid, lost; `doing` in words."""

    name: str
    role: str
    node: str
    state: str
    doing: str
    device: str
    pid: int
    session: str
    heartbeat_age_s: float
    tasks_done: int
    versions: dict[str, str]
    health: str = ""
    """Of its GPU, in words; empty where nothing is known of one."""
    device_state: DeviceState | None = None
    reason: str = ""
    """Why it does nothing, or gets nothing more; empty while it works and all is well."""
    task: str = ""
    """The kind of task it has, as records name it; empty where it has none."""
    for_s: float | None = None
    """Since when it has that task, or idles; None where no job counts its time."""
    cause: str = ""
    """Of its idle time, as records name it; `bubble`: though work was outstanding."""
    bubble: bool = False
    host: str = ""
    """What its box calls itself."""
    runs: str = ""
    """Of a recorder: where run folders are, on its box."""
    clock_ahead_s: float | None = None
    """How far its box's clock is before the driver's, by its last heartbeat; the way of that heartbeat is in it."""
    drained: str = ""
    """Why no new work is given to it; empty where it is."""
    drained_by: str = ""
    drained_s: float | None = None
    """For how long."""
    traffic: str = ""
    """How driver and other workers speak with it: encrypted, local (in the clear, on one machine), or CLEAR_DATA."""
    held_bytes: int = 0
    """Of tensors that wait there for those who need them, by its last heartbeat."""
    spooled_bytes: int = 0
    """Of those, on disk."""
    memory_limit_bytes: int | None = None
    """So many may be in memory before they go to disk; None: no limit."""
    spool_limit_bytes: int = 0
    """So many may be on disk."""
    rank: int | None = None
    """Of a trainer that is one of several: which of `ranks`."""
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """`target`: a node, or one worker by its name."""

    target: str
    by: str
    why: str
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a request changes beside a name: of a job its state, of a worker whether it is drained ("", draining,
    drained). Before and after may be the same where only the reason is another."""

    kind: str
    """job or worker"""
    name: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueItem:
    """A micro-batch (or fragment) that waits. queue: "sq" or "uq"."""

    queue: str
    job: str
    rollout: int
    micro_batch: int
    version: int
    age_s: float
    reason: str
    num_bytes: int = 0
    """Of its samples and trajectories."""
    held_by: tuple[str, ...] = ()
    """The workers that keep them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    items: tuple[QueueItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    epoch: int
    uptime_s: float
    nodes: tuple[NodeView, ...]
    sq_depth: int
    sq_oldest_s: float | None
    uq_depth: int
    uq_oldest_s: float | None
    job: JobView | None
    """The first of `jobs`."""
    queued: int
    bubble_share: float | None
    """Share of worker time in bubbles since the first global step of the jobs in `jobs` began."""
    problems: tuple[str, ...] = field(default_factory=tuple)
    jobs: tuple[JobView, ...] = ()
    """All that have workers, oldest first."""
    drains: tuple[DrainView, ...] = ()
    now_ns: int = 0
    """The driver's clock, which records are dated by."""
    sq_bytes: int = 0
    """Of samples and trajectories of what waits in SQ."""
    uq_bytes: int = 0
    """The same of UQ."""
    held_bytes: int = 0
    """Of tensors that wait at workers, all together, policy versions and encoded prompts too."""
    spooled_bytes: int = 0
    """Of those, on disk."""
