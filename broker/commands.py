"""What the core asks its shell to do. The shell carries them out in order and adds nothing."""

from dataclasses import dataclass

from digend.wire.broadcasts import Broadcast
from digend.wire.ranks import Ranks
from digend.wire.records import Record
from digend.wire.refs import WeightsRef
from digend.wire.tasks import TaskBody


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send a `Tick` at this `now` (nanoseconds), unless a later WakeAt replaces it. One timer is enough."""

    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTask:
    session: str
    lease: str
    attempt: int
    lease_s: float
    task: TaskBody


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    session: str
    lease: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeResult:
    session: str
    lease: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """`workers`: where pieces of it can be had too. broadcast: try that first; to its trainer: send it.
    Without: pull it, and give up a broadcast of it that goes on; so does its trainer.
    """

    session: str
    weights: WeightsRef
    workers: tuple[str, ...] = ()
    broadcast: Broadcast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireVersions:
    session: str
    job: str
    incarnation: int
    oldest_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    session: str
    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Tell a worker that a job is over."""

    session: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStore:
    """Rank 0 is to open the store of an epoch."""

    session: str
    job: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskJoin:
    session: str
    job: str
    ranks: Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLeave:
    session: str
    job: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """The session is over: whatever it still sends is refused, so that the worker says HELLO again."""

    session: str
    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Append to the job's record stream (journal, then recorder and watchers)."""

    record: Record


Command = (
    WakeAt
    | SendTask
    | RevokeLease
    | AcknowledgeResult
    | StageWeights
    | RetireVersions
    | Free
    | End
    | AskStore
    | AskJoin
    | AskLeave
    | Evict
    | Write
)
