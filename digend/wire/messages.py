"""Control-plane messages between workers, clients and the driver (docs/protocol.md). At most 256 KiB each.

One frame a message: msgpack of `[PROTOCOL, type name, fields]`. A worker says HELLO and gets WELCOME (a session) or
REFUSED; everything after carries the session. Results are kept by the worker until RESULT_ACK, and offered again in
the inventory of the next HELLO.
"""

from dataclasses import dataclass, field
from typing import Literal

from digend.wire.devices import DeviceState
from digend.wire.records import Record
from digend.wire.refs import WeightsRef
from digend.wire.story import StoryCursor, Transition
from digend.wire.tasks import Receipt, ResultBody, TaskBody, TaskError
from digend.wire.views import Change, DriverView, JobDetail, JobView, NodeView, QueueView, StatusView, VersionView

PROTOCOL = 1
MAX_MESSAGE_BYTES = 256 * 1024

Role = Literal["generator", "trainer", "reward", "recorder"]

# -------------------------------------------------------------------------------------------- worker -> driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What must agree between workers for equal numbers; `numbers` (of torch, diffusers) is compared by the core."""

    digend: str
    python: str
    numbers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """Work a worker has in its hands: still running, or done and not yet acknowledged."""

    lease: str
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJob:
    """A job whose model this process has loaded; a trainer says what it has applied since its last commit."""

    job: str
    incarnation: int
    version: int
    staged: tuple[int, ...] = ()
    global_step: int = -1
    applied: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """`instance` names this process's life: blobs die with it. `name` is node/role/slot and is unique in a cluster."""

    role: Role
    name: str
    node: str
    instance: str
    pid: int
    data: str
    """Address of the blob server."""
    device: str
    versions: Versions
    held: tuple[HeldLease, ...] = ()
    prepared: tuple[PreparedJob, ...] = ()
    written: dict[str, int] = field(default_factory=dict)
    """Recorder only: the next record wanted of each job."""
    host: str = ""
    """What its box calls itself."""
    runs: str = ""
    """Recorder only: where run folders are, on its box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sent every `heartbeat_s`. `done` counts denoising steps or chunks of pairs of `lease`: progress renews it."""

    session: str
    seq: int
    lease: str | None = None
    done: int = 0
    total: int = 0
    resident_bytes: int = 0
    device: DeviceState | None = None
    """None where there is no GPU, or nothing is known of it."""
    wall_ns: int = 0
    """The box's clock as this was sent."""
    problem: str = ""
    """What a person should see to, in words: `digenctl status` shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    session: str
    lease: str
    result: ResultBody
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    session: str
    lease: str
    error: TaskError
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """All tensors of a version were pulled, digests and names checked; it will be swapped in between two tasks."""

    session: str
    job: str
    incarnation: int
    version: int
    num_bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailed:
    session: str
    job: str
    incarnation: int
    version: int
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """A worker leaves of its own will, after finishing its task."""

    session: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsWritten:
    """Recorder: every record of `job` below `next_seq` is on disk."""

    session: str
    job: str
    next_seq: int


# -------------------------------------------------------------------------------------------- driver -> worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    session: str
    epoch: int
    heartbeat_s: float
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """HELLO or a message was refused; `fatal` means do not try again with the same configuration (exit 78)."""

    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAck:
    session: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """A lease on a task. It ends when no progress is reported for `lease_s` seconds."""

    session: str
    lease: str
    attempt: int
    lease_s: float
    task: TaskBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """Stop working on a lease if it is still running; its result is no longer wanted."""

    session: str
    lease: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultAck:
    """The result is journalled: forget it."""

    session: str
    lease: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    session: str
    weights: WeightsRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """No open micro-batch names a version below `oldest_version` any more: staged and published copies may go."""

    session: str
    job: str
    incarnation: int
    oldest_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBlobs:
    session: str
    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJob:
    """The job is over: unload its model, free all that belongs to it."""

    session: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """To the recorder, in order."""

    session: str
    records: tuple[Record, ...]
    configs: dict[str, str] = field(default_factory=dict)
    """Resolved job file (TOML) of each job whose record 0 is among `records`."""


# ---------------------------------------------------------------------------------------------- client <-> driver


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """Asks for nothing but the versions; also what `digenctl version` sends."""

    request: str
    digend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A chunk of a file (at most 128 KiB), kept under its blake2b digest; complete when `size` bytes are there."""

    request: str
    digest: str
    offset: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOf:
    """The job `parent`, at its checkpoint of that global step."""

    parent: str
    global_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """`config` is the resolved job file as JSON, `toml` as text; `prompts` the digest of an uploaded prompts file.

    `fork`: the job starts from a checkpoint of another one; prompts that are "" (of evaluation: None, where the job
    file names some) are then those of the parent.
    """

    request: str
    config: str
    toml: str
    prompts: str
    eval_prompts: str | None
    job: str | None
    user: str = ""
    """Who submits, as digenctl sees it: fair order goes by it."""
    priority: int = 0
    dry_run: bool = False
    fork: ForkOf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListJobs:
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetStatus:
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetQueue:
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNodes:
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJob:
    request: str
    job: str


After = Literal["now", "micro-batch", "global-step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """`after`: at once, when its running tasks have ended, or with a checkpoint after the open global step.

    Of all requests that change something: `dry_run` says what would change, and changes nothing.
    """

    request: str
    job: str
    after: After = "now"
    by: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """After the open global step (after the rollout, where one feeds several), with a checkpoint."""

    request: str
    job: str
    by: str = ""
    why: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    request: str
    job: str
    by: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPriority:
    request: str
    job: str
    priority: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """No new tasks for the workers of a node, or for one worker; `target` names it, or is the beginning of its name."""

    request: str
    target: str
    by: str = ""
    why: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain:
    request: str
    target: str
    by: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRecords:
    """Records of a job from `since` on, at most 200 and at most what fits one message."""

    request: str
    job: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetStory:
    """Transitions of what `subject` names (`digend.wire.subjects`), from where the cursor of the last page stands."""

    request: str
    subject: str
    cursor: StoryCursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetJobFile:
    request: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDriver:
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """`position`: how many jobs are before it. Its state and reason are those after the submit, also of a dry run."""

    request: str
    job: str
    created: bool
    position: int
    state: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    request: str
    complete: bool
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    request: str
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReply:
    request: str
    status: StatusView


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReply:
    request: str
    queue: QueueView


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    request: str
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReply:
    request: str
    job: JobDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A request was taken, or rehearsed. `name`: the whole id of its job, or what is drained, with its state (of a
    drain: draining, drained, or nothing) and reason after it."""

    request: str
    name: str
    state: str
    reason: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordList:
    request: str
    records: tuple[Record, ...]
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryPage:
    """A bounded part of the journal, read; `cursor` is None at its end. A page may hold no transition."""

    request: str
    transitions: tuple[Transition, ...]
    cursor: StoryCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The resolved job file, as TOML."""

    request: str
    toml: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReply:
    request: str
    driver: DriverView


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionReply:
    request: str
    version: VersionView


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """`code` is the exit code that digenctl ends with."""

    request: str
    code: int
    message: str
