"""What the core is told. Each is journalled with its batch; `now` travels beside them, never inside.

Whoever runs the core (driver daemon, virtual-time harness, replay) hands in the same objects.
"""

from dataclasses import dataclass, field
from typing import Literal

from broker.holds import Drain
from broker.spec import JobSpec
from broker.usage import Usage
from digend.wire.broadcasts import Transport
from digend.wire.devices import DeviceState
from digend.wire.tasks import Receipt, ResultBody, TaskError
from digend.wire.workers import Hello

After = Literal["now", "micro-batch", "global-step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A timer asked for by `WakeAt` went off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStarted:
    """First event of a driver's life. All sessions of earlier epochs are gone until they say HELLO again.

    A worker is torpid (no new leases) after `torpid_s` without a heartbeat and lost after `lost_s`; after a restart
    its leases wait `rejoin_s` for it. `drains` and `usage` are what a core that starts anew knows of earlier times.
    """

    epoch: int
    torpid_s: float = 4.0
    lost_s: float = 15.0
    rejoin_s: float = 20.0
    drains: tuple[Drain, ...] = ()
    usage: dict[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChanged:
    """The limits of `DriverStarted`, other ones from now on."""

    torpid_s: float
    lost_s: float
    rejoin_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """`user` submitted it, as digenctl said: fair order goes by it."""

    spec: JobSpec
    user: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """now, or where its running tasks (micro-batch) or the open global step have ended."""

    job: str
    after: After = "now"
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    job: str
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRequested:
    job: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """`target`: name of a node or of one worker, whether it is there or not."""

    target: str
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainRequested:
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHello:
    """The shell chose the session id and already sent WELCOME."""

    session: str
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone:
    """The worker said goodbye (`left`), or the shell saw its connection refuse a message."""

    session: str
    reason: str
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBeat:
    session: str
    lease: str | None
    done: int
    device: DeviceState | None = None
    full: bool = False
    """It has no room for more tensors."""
    problem: str = ""
    """What it says is wrong, or waits for, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    session: str
    lease: str
    result: ResultBody
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBroke:
    session: str
    lease: str
    error: TaskError
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsStaged:
    session: str
    job: str
    incarnation: int
    version: int
    num_bound: int
    pull_ns: int = 0
    check_ns: int = 0
    by: Transport = "pull"
    fell_back: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsNotStaged:
    session: str
    job: str
    incarnation: int
    version: int
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReady:
    """Rank 0 has opened the store of an epoch."""

    session: str
    job: str
    epoch: int
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReady:
    """A trainer has met the other ranks of an epoch."""

    session: str
    job: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBroke:
    """A trainer could not join the ranks of an epoch, or lost another of them."""

    session: str
    job: str
    epoch: int
    error: TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsPersisted:
    """The recorder has written every record of `job` below `next_seq`; blobs kept for it may go."""

    job: str
    next_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """The disk of the journal or of run folders is full, or has room again. Meanwhile no job is given a task."""

    full: bool
    reason: str


Request = (
    JobSubmitted
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | PriorityRequested
    | DrainRequested
    | UndrainRequested
)
"""What clients ask."""

Event = (
    Tick
    | DriverStarted
    | LimitsChanged
    | Request
    | WorkerHello
    | WorkerGone
    | WorkerBeat
    | TaskFinished
    | TaskBroke
    | WeightsStaged
    | WeightsNotStaged
    | StoreReady
    | RankReady
    | RankBroke
    | RecordsPersisted
    | DiskState
)
