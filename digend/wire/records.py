"""The job's record stream: what the decision core says happened. The recorder makes `runs/ID` of it, `watch` shows it.

Times are the driver's `now` in nanoseconds. Records of a job are numbered from 0 without holes, so that a recorder that
was away asks for what it misses.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Discriminator

from digend.wire.broadcasts import Transport
from digend.wire.refs import BlobRef
from digend.wire.tasks import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """queued, preparing, running, held (no room for a checkpoint, or skipped steps), paused, completed, failed,
    cancelled; and why."""

    state: str
    reason: str = ""
    user: str = ""
    priority: int = 0
    kind: Literal["job_state"] = "job_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRecord:
    """The job is a fork: it starts from this checkpoint of another job."""

    parent: str
    global_step: int
    version: int
    path: str
    digest: str
    kind: Literal["origin"] = "origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """joined, torpid, healed, lost, left."""

    worker: str
    role: str
    state: str
    reason: str = ""
    kind: Literal["worker_state"] = "worker_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One finished task: from dispatch to result on the driver's clock, and the worker's own receipt."""

    worker: str
    task: str
    """prepare, encode, generate, assist (TAG), score, update, commit, evaluate, evaluate_score, checkpoint, reset"""
    lease: str
    start_ns: int
    end_ns: int
    receipt: Receipt
    global_step: int = -1
    version: int = -1
    micro_batch: int = -1
    num_samples: int = 0
    switched: bool = False
    """A trainer that generated before trains now, or the other way round."""
    switch_ns: int = 0
    """Of such an update: how much longer it took than others, by the core's estimate from all of them; 0: not known."""
    kind: Literal["task"] = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingRecord:
    """A worker fetched a policy version while it went on with its tasks: from the driver's word to the worker's.

    `pull_ns` and `check_ns` are the worker's own: the transfer of `num_bytes`, and the look at names, shapes and
    digests. `error` says why it came to nothing, `fell_back` why it was pulled and not broadcast.
    """

    worker: str
    incarnation: int
    version: int
    start_ns: int
    end_ns: int
    num_bytes: int
    pull_ns: int = 0
    check_ns: int = 0
    error: str = ""
    by: Transport = "pull"
    fell_back: str = ""
    kind: Literal["staging"] = "staging"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    worker: str
    task: str
    reason: str
    message: str
    global_step: int = -1
    micro_batch: int = -1
    kind: Literal["task_failure"] = "task_failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRecord:
    """A worker had nothing to do from `start_ns` to `end_ns`; `cause` in words, `bubble` where work was outstanding."""

    worker: str
    start_ns: int
    end_ns: int
    cause: str
    bubble: bool
    kind: Literal["idle"] = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A strategy's answer at a free instant of the trainer.

    Where it searched: `tags` that it plans from now on in this global step; microseconds to the end of the last update,
    as planned and if the trainer only updates; the times it went by (`generate`, `assist`, ..., microseconds a
    micro-batch); the states it looked at, and whether its budget ended first. `until_step`: the global step of that
    last update, another than `global_step` where one rollout feeds several (-1: not told).
    """

    strategy: str
    answer: str
    pending: int
    ready: int
    global_step: int = -1
    tags: int = 0
    end_us: int | None = None
    without_us: int | None = None
    times_us: dict[str, int] = field(default_factory=dict)
    states: int = 0
    exhausted: bool = False
    until_step: int = -1
    kind: Literal["decision"] = "decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRecord:
    """|log ratio| to the rollout over `num_pairs` pairs of a global step: those of one worker's samples, of one
    timestep, or of one origin (generator, or TAG: the trainer made them)."""

    by: Literal["worker", "timestep", "origin"]
    name: str
    num_pairs: int
    mean: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One global step is closed. `version` is the version it made (unchanged where `skipped` says why)."""

    global_step: int
    version: int
    incarnation: int
    seconds: float
    reward_mean: float | None
    """None where no sample has a reward; so for `reward_std`."""
    reward_std: float | None
    components: dict[str, float]
    num_samples: int
    num_masked: int
    num_selected: int
    num_groups: int
    num_dropped_groups: int
    num_zero_std_groups: int
    z0: int
    z: int
    loss: float
    clip_fraction: float
    ratio_mean: float
    max_abs_log_ratio: float
    first_max_abs_log_ratio: float
    """of the first micro-batch after the weights changed, unless it is stale: 0 up to rounding when exact"""
    kl: float
    gradient_norm: float
    learning_rate: float
    stale_micro_batches: int
    assisted_micro_batches: int
    skipped: str | None = None
    num_micro_batches: int = 0
    component_stds: dict[str, float] = field(default_factory=dict)
    component_zero_std: dict[str, float] = field(default_factory=dict)
    """Share of groups in which all scored samples have the same value of the component."""
    advantage_mean: float = 0.0
    advantage_std: float = 0.0
    advantage_min: float = 0.0
    advantage_max: float = 0.0
    ratio_max: float = 0.0
    version_gap: float = 0.0
    """Mean over micro-batches of the versions between drawing and training."""
    worker_seconds: float = 0.0
    """Time of all workers of the job during the step; `gpu_seconds`: of those on a GPU."""
    gpu_seconds: float = 0.0
    bubble_seconds: dict[str, float] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    """By kind of task; `peak_flops`: what the devices could have done in that time, 0 where it is not known."""
    peak_flops: float = 0.0
    drift: tuple[DriftRecord, ...] = ()
    """At most 64 of a kind, those that drifted most."""
    sequence_drift_mean: float = 0.0
    sequence_drift_max: float = 0.0
    """|log ratio| of whole samples, over all timesteps that were trained of each."""
    rejected_pairs: int = 0
    """Left out of the loss by `rejection_threshold`; they count in Z."""
    loss_scale: float = 1.0
    """Of float16; 1 of other number types."""
    remade_updates: int = 0
    """Micro-batches made again because float16 overflowed, each time counted."""
    kind: Literal["step"] = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalGroup:
    """One evaluated prompt: its samples (`{uid}/{index}/pixels` of `blob`) and the reward of each."""

    prompt: str
    text: str
    blob: BlobRef
    rewards: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """Means over all samples of all evaluation prompts; `label` is before, during or after."""

    global_step: int
    version: int
    incarnation: int
    label: str
    metrics: dict[str, float]
    num_samples: int
    seconds: float
    groups: tuple[EvalGroup, ...]
    num_failed: int = 0
    """Samples without a reward; where all are, `metrics` has none either."""
    kind: Literal["evaluation"] = "evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    global_step: int
    version: int
    incarnation: int
    path: str
    digest: str
    pipeline: str | None
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """A new incarnation: the trainer was lost; the run goes on from `global_step`."""

    incarnation: int
    global_step: int
    reason: str
    kind: Literal["restart"] = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Anything else worth a line: dropped groups, discarded micro-batches, warnings."""

    level: str
    message: str
    details: dict[str, str] = field(default_factory=dict)
    kind: Literal["notice"] = "notice"


RecordBody = Annotated[
    JobState
    | OriginRecord
    | WorkerState
    | TaskRecord
    | StagingRecord
    | TaskFailure
    | IdleRecord
    | Decision
    | StepRecord
    | EvaluationRecord
    | CheckpointRecord
    | RestartRecord
    | Notice,
    Discriminator("kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    job: str
    seq: int
    at_ns: int
    body: RecordBody
