"""What a worker can be asked to do, and what it answers. One dataclass each; `kind` tells them apart on the wire.

Words: a rollout r has B micro-batches; micro-batch i of it feeds global step `r * updates_per_rollout + i * u // B`.
A fragment is one worker's share of a micro-batch's samples.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Discriminator

from digend.wire.refs import BlobRef, WeightsRef

# --------------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTask:
    """Load the job's model. A trainer also restores `checkpoint` (a folder; None = the base weights) and publishes."""

    job: str
    incarnation: int
    config: str
    """The resolved job file as JSON (`digend.config.job.JobConfig`)."""
    checkpoint: str | None = None
    checkpoint_digest: str = ""
    """Of the manifest that `checkpoint` must have; "" where that is not known."""
    version: int = 0
    """Policy version that the restored weights have."""
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A condition: its uid never is its text. `metadata` reaches the reward."""

    uid: str
    text: str
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeTask:
    """Encode each prompt once; the tensors are used by rollout and training alike."""

    job: str
    incarnation: int
    prompts: tuple[Prompt, ...]
    kind: Literal["encode"] = "encode"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One sample of a group. `timesteps` is S_i: the indices to keep for training, in order (empty in evaluation)."""

    index: int
    initial_seed: int
    noise_seed: int
    timesteps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """Samples of one prompt. `levels[i]` is the noise level from sigma i to sigma i+1 (0 = deterministic)."""

    prompt: str
    condition: BlobRef
    levels: tuple[float, ...]
    samples: tuple[SampleRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateTask:
    """Roll out and decode a fragment under one policy version. `assist` marks TAG (the trainer generates).

    `offload`: of a trainer; what only training needs is to wait in host memory meanwhile.
    """

    job: str
    incarnation: int
    version: int
    purpose: Literal["train", "evaluate"]
    global_step: int
    rollout: int
    micro_batch: int
    fragment: int
    groups: tuple[GroupRequest, ...]
    sigmas: tuple[float, ...]
    assist: bool = False
    offload: bool = False
    kind: Literal["generate"] = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreItem:
    """One decoded sample. Its pixels are the tensor `{prompt.uid}/{index}/pixels` of `blob`."""

    prompt: Prompt
    index: int
    blob: BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTask:
    """Score samples with the job's rewards ("train") or with its rewards and untrained metrics ("evaluate")."""

    job: str
    incarnation: int
    purpose: Literal["train", "evaluate"]
    global_step: int
    rollout: int
    micro_batch: int
    fragment: int
    items: tuple[ScoreItem, ...]
    kind: Literal["score"] = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateItem:
    """One selected sample: advantage, S_i and where its trajectory is (`{prompt}/{index}/...` of `trajectory`)."""

    prompt: str
    index: int
    advantage: float
    timesteps: tuple[int, ...]
    levels: tuple[float, ...]
    trajectory: BlobRef
    condition: BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTask:
    """Accumulate the gradient of one micro-batch: sum over (sample, timestep) of the loss, divided by `z0`."""

    job: str
    incarnation: int
    version: int
    global_step: int
    rollout: int
    micro_batch: int
    sigmas: tuple[float, ...]
    items: tuple[UpdateItem, ...]
    z0: int
    kind: Literal["update"] = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTask:
    """Scale the accumulated gradient by z0 / z, clip, step the optimizer and publish version + 1.

    `micro_batches` must equal what the trainer has applied, else it fails with reason "applied".
    """

    job: str
    incarnation: int
    version: int
    global_step: int
    micro_batches: tuple[int, ...]
    z0: int
    z: int
    kind: Literal["commit"] = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTask:
    """Drop accumulated gradients (and what was applied) of the open global step."""

    job: str
    incarnation: int
    kind: Literal["reset"] = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTask:
    """Write a checkpoint after `global_step` optimizer steps; `final` adds the whole pipeline in diffusers' layout."""

    job: str
    incarnation: int
    version: int
    global_step: int
    final: bool = False
    kind: Literal["checkpoint"] = "checkpoint"


TaskBody = Annotated[
    PrepareTask | EncodeTask | GenerateTask | ScoreTask | UpdateTask | CommitTask | ResetTask | CheckpointTask,
    Discriminator("kind"),
]

# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareResult:
    """`sigmas` is the family's own list for the job's shape; the driver pins it into every request."""

    base_digest: str
    num_parameters: int
    num_trainable: int
    sigmas: tuple[float, ...]
    eval_sigmas: tuple[float, ...]
    weights: WeightsRef | None = None
    adapter_digest: str = ""
    """Of the adapter that the job starts from, where it names one."""
    peak_flops: float = 0.0
    """Operations a second the device can do in the job's dtype at best; 0 where that is not known."""
    commit: str = ""
    """Of the hub, where model.path is a hub id."""
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeResult:
    conditions: dict[str, BlobRef]
    kind: Literal["encode"] = "encode"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScore:
    """A reward that failed is a status with a reason, never a number."""

    prompt: str
    index: int
    reward: float | None
    components: dict[str, float]
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResult:
    """`trajectory`: latents and log-probs for training (None in evaluation). `samples`: decoded pixels.

    `scores`: of samples that were scored along the way, because their reward costs nothing; the others go through SQ.
    """

    trajectory: BlobRef | None
    samples: BlobRef
    num_samples: int
    scores: tuple[SampleScore, ...] = ()
    kind: Literal["generate"] = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """`group_metrics[prompt][name]`: metrics of a whole group, evaluation only (such as diversity)."""

    scores: tuple[SampleScore, ...]
    group_metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    kind: Literal["score"] = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleDrift:
    """|log ratio| to the rollout of one sample over its `num_pairs` trained timesteps: their sum, the largest, and the
    absolute value of the sum with signs, which is that of the whole trajectory."""

    prompt: str
    index: int
    num_pairs: int
    sum: float
    max: float
    whole: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestepDrift:
    """|log ratio| to the rollout of a micro-batch's pairs at one timestep."""

    timestep: int
    num_pairs: int
    sum: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """Sums over the micro-batch's pairs, to be divided by `num_pairs` for a mean; `pairs` only where the job asks."""

    num_pairs: int
    loss_sum: float
    clipped: int
    ratio_sum: float
    max_abs_log_ratio: float
    kl_sum: float
    ratio_max: float = 0.0
    pairs: tuple[tuple[str, int, int, float], ...] = ()
    """(prompt, sample, timestep, loss)"""
    rejected: int = 0
    """Pairs that were left out of the loss; they count in `num_pairs`."""
    sample_drift: tuple[SampleDrift, ...] = ()
    timestep_drift: tuple[TimestepDrift, ...] = ()
    """Of algorithms with an importance ratio."""
    remade: int = 0
    """How often it was made again, at half the loss scale, because float16 overflowed."""
    width: int = 0
    """Timesteps of a sample in one pass; 0: all."""
    tried: tuple[tuple[int, float], ...] = ()
    """(width, seconds a pair) where widths were tried before it (`training.timestep_width = "auto"`)."""
    kind: Literal["update"] = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """`skipped` says why no optimizer step was made (a non-finite gradient); then `weights` is None."""

    gradient_norm: float
    learning_rate: float
    weights: WeightsRef | None
    skipped: str | None = None
    loss_scale: float = 1.0
    """Of float16; 1 of other number types."""
    kind: Literal["commit"] = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetResult:
    kind: Literal["reset"] = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    path: str
    digest: str
    pipeline: str | None = None
    kind: Literal["checkpoint"] = "checkpoint"


ResultBody = Annotated[
    PrepareResult
    | EncodeResult
    | GenerateResult
    | ScoreResult
    | UpdateResult
    | CommitResult
    | ResetResult
    | CheckpointResult,
    Discriminator("kind"),
]


SWITCH_STAGES = OFFLOAD, LOAD, RESTORE = "switch_offload", "switch_load", "switch_restore"
"""Stages of a trainer's switch between training and generating. What only training needs leaves the device, and comes
back before the next update or commit; in each rollout the weights that draw take the place of those that learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """How long the task took on the worker's monotonic clock, by stage (encode, generate, decode, score, fetch...)."""

    total_ns: int
    stages: tuple[tuple[str, int], ...]
    num_samples: int = 0
    flops: float = 0.0
    """Floating-point operations of the model's forward and backward passes, as torch counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    """Why a task failed. `reason` is one of `TASK_ERRORS`; `retry` says whether the same task may work elsewhere."""

    reason: str
    message: str
    retry: bool


TASK_ERRORS = (
    "blob_lost",  # an owner did not answer or no longer holds the blob: make the micro-batch again
    "weights",  # number of bound tensors or a digest was wrong: the job fails
    "model",  # the model folder cannot be loaded: the job fails
    "config",  # an option is refused by the worker: the job fails
    "applied",  # commit asked for another set of micro-batches than applied: reset and requeue the step
    "checkpoint",  # could not be written or read
    "out_of_memory",
    "rank_lost",  # another rank of the trainer is gone, or did not answer in time: the ranks are formed anew
    "non_finite",  # loss or velocity is not finite; message names tensor and timestep
    "cancelled",
    "internal",
)
