"""What the core is told. Each is journalled with its batch; `now` travels beside them, never inside.

Whoever runs the core (driver daemon, virtual-time harness, replay) hands in the same objects.
"""

from dataclasses import dataclass

from broker.spec import JobSpec
from digend.wire.devices import DeviceState
from digend.wire.messages import Hello
from digend.wire.tasks import Receipt, ResultBody, TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A timer asked for by `WakeAt` went off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStarted:
    """First event of a driver's life. All sessions of earlier epochs are gone until they say HELLO again.

    A worker is torpid (no new leases) after `torpid_s` without a heartbeat and lost after `lost_s`; after a restart
    its leases wait `rejoin_s` for it.
    """

    epoch: int
    torpid_s: float = 4.0
    lost_s: float = 15.0
    rejoin_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChanged:
    """The limits of `DriverStarted`, other ones from now on."""

    torpid_s: float
    lost_s: float
    rejoin_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHello:
    """The shell chose the session id and already sent WELCOME."""

    session: str
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGone:
    """The worker said goodbye, or the shell saw its connection refuse a message."""

    session: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBeat:
    session: str
    lease: str | None
    done: int
    device: DeviceState | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsNotStaged:
    session: str
    job: str
    incarnation: int
    version: int
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


Event = (
    Tick
    | DriverStarted
    | LimitsChanged
    | JobSubmitted
    | CancelRequested
    | WorkerHello
    | WorkerGone
    | WorkerBeat
    | TaskFinished
    | TaskBroke
    | WeightsStaged
    | WeightsNotStaged
    | RecordsPersisted
    | DiskState
)
