"""What workers and the driver tell each other (docs/protocol.md).

A worker says HELLO and gets WELCOME (a session) or REFUSED; everything after carries the session. Results are kept by
the worker until RESULT_ACK, and offered again in the inventory of the next HELLO.
"""

from dataclasses import dataclass, field
from typing import Literal

from digend.wire.broadcasts import Broadcast, Transport
from digend.wire.devices import DeviceState
from digend.wire.protocol import PROTOCOL
from digend.wire.ranks import Ranks
from digend.wire.records import Record
from digend.wire.refs import WeightsRef
from digend.wire.tasks import Receipt, ResultBody, TaskBody, TaskError

Role = Literal["generator", "trainer", "reward", "recorder"]

# -------------------------------------------------------------------------------------------- worker -> driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What must agree between workers for equal numbers; `numbers` (torch, diffusers, the attention backend) is
    compared by the core."""

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
    interface: str = ""
    """Trainers and generators: the host at which torch.distributed of other boxes reaches it; "" where only its own
    box does."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Trainer only: of which epoch of a job's ranks this process is one."""


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
    """What a person should see to, or what is waited for outside, in words: `digenctl status` shows it."""
    held_bytes: int = 0
    """Of tensors that wait here for those who need them, on disk too."""
    spooled_bytes: int = 0
    """Of those, on disk."""
    memory_limit_bytes: int | None = None
    """So many may be in memory before they go to disk; None: no limit."""
    spool_limit_bytes: int = 0
    """So many may be on disk."""
    full: bool = False
    """There is no room for more: it should generate nothing while others can go on."""


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
    """All tensors of a version are here, digests and names checked; it will be swapped in between two tasks."""

    session: str
    job: str
    incarnation: int
    version: int
    num_bound: int
    pull_ns: int = 0
    check_ns: int = 0
    """How long the transfer and the look at it took."""
    by: Transport = "pull"
    fell_back: str = ""
    """Why a broadcast of it came to nothing, so that it was pulled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailed:
    session: str
    job: str
    incarnation: int
    version: int
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOpened:
    """Rank 0 has opened the store of an epoch, at host:port."""

    session: str
    job: str
    epoch: int
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJoined:
    """This process is one of the ranks: it has met all the others."""

    session: str
    job: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailed:
    """This process could not become one of the ranks, or has lost another of them."""

    session: str
    job: str
    epoch: int
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
    """`workers`: addresses of some that stage or have staged the same version, to pull pieces of it from too.

    broadcast: it is sent to several at once, and pulled only where that fails; to its trainer: send it. Without: pull
    it, and give up a broadcast of it that goes on; so does its trainer.
    """

    session: str
    weights: WeightsRef
    workers: tuple[str, ...] = ()
    broadcast: Broadcast | None = None


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
class OpenStore:
    """To the trainer that is rank 0: open the store in which the ranks of this epoch find each other."""

    session: str
    job: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRanks:
    """Meet the other ranks; who is not rank 0 then does what rank 0 does, until told to leave."""

    session: str
    job: str
    ranks: Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRanks:
    """Leave the ranks of this epoch at once, whatever they do."""

    session: str
    job: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """To the recorder, in order."""

    session: str
    records: tuple[Record, ...]
    configs: dict[str, str] = field(default_factory=dict)
    """Resolved job file (TOML) of each job whose record 0 is among `records`."""
