"""What `digenctl story` is made of: transitions of one thing, and where to go on reading the journal.

Owns shapes only. A cursor is the driver's: whoever asks hands it back as it came, so that the driver keeps nothing
between two pages.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of one thing, in words. `at_ns` is the driver's `now`; worker and lease may be empty."""

    at_ns: int
    what: str
    cause: str = ""
    worker: str = ""
    lease: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLease:
    """A lease that had not ended where a page ended. `done` and `progress_ns` as heartbeats told them last."""

    worker: str
    session: str
    what: str
    done: int = 0
    progress_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryCursor:
    """`record`: the next record to read, where the journal has dropped the batches that wrote it; -1 once it has not.

    `batch`: the last batch that was read. `sessions`: live ones, with their workers. `leases`: open ones of the thing.
    `global_step`: the one that a micro-batch belongs to, -1 where that is not known.
    """

    record: int = 0
    batch: int = 0
    sessions: dict[str, str] = field(default_factory=dict)
    leases: dict[str, OpenLease] = field(default_factory=dict)
    global_step: int = -1
