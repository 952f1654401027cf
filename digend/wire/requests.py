"""What clients ask the driver (docs/protocol.md). `request` is an id of the client's making, repeated in the reply.

Knows no view and no record: whoever asks for a status makes the classes of nothing else.
"""

from dataclasses import dataclass
from typing import Literal


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
    """The newest; `before`: those that were submitted before this job."""

    request: str
    before: str = ""


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
class GetJobFile:
    request: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDriver:
    request: str
