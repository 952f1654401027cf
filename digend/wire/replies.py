"""What the driver replies to clients (docs/protocol.md); any request may get an `ErrorReply`.

Replies that hold records or transitions are in `pages`.
"""

from dataclasses import dataclass

from digend.wire.views import Change, DriverView, JobDetail, JobView, NodeView, QueueView, StatusView, VersionView


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
    """In the order of their submits. `earlier`: how many were submitted before these."""

    request: str
    jobs: tuple[JobView, ...]
    earlier: int = 0


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
