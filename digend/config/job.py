"""The job file: what `digenctl submit` takes. Torch-free; docs/job-file.md is generated from these models.

Options of a model family, an algorithm or a reward are validated by the plug-in's own model
(`digend.job_check`); what two keys must agree on is in `digend.config.agreement`.
"""

from typing import Annotated, Literal

from pydantic import Field

from digend.config.section import Section as Section
from digend.config.tracking import TrackingConfig, Word

Options = dict[str, bool | int | float | str | list[int] | list[float] | list[str]]
Beta = Annotated[float, Field(ge=0, lt=1)]


MANY = 10_000
"""Of what the driver draws one by one: more is a slip of the hand."""


class MemoryConfig(Section):
    """Less memory for more time, by what diffusers, accelerate and torch bring (docs/models.md)."""

    offload_encoders: bool = Field(
        False, description="Text encoders wait in host memory and come to the device to encode."
    )
    layerwise_casting: Literal["none", "float8_e4m3fn", "float8_e5m2"] = Field(
        "none",
        description="Type in which frozen weights of the trained modules are kept between layers; LoRA only. "
        "Changes numbers, alike on all workers.",
    )
    offload_blocks: Annotated[
        int,
        Field(
            ge=0,
            description="On generators: blocks of the transformer that are on the device at a time, the others in host "
            "memory; 0 = all are on the device.",
        ),
    ] = 0
    attention_backend: str = Field(
        "",
        examples=["native", "flash", "_native_cudnn", "sage"],
        description="Attention of the trained modules, as diffusers names its backends; empty = its default.",
    )
    compile_blocks: str = Field(
        "",
        examples=["inductor", "eager"],
        description="torch.compile backend for each repeated block of the trained modules; empty = not compiled.",
    )
    vae_tiling: bool = Field(False, description="Decode in tiles; pictures larger than a tile change a little.")
    vae_slicing: bool = Field(False, description="Decode one sample at a time.")


class ModelConfig(Section):
    """The pipeline that is post-trained."""

    family: Word = Field(description="Model family, a plug-in name such as flux.")
    path: Word = Field(
        examples=["models/flux-dev", "black-forest-labs/FLUX.1-dev@main"],
        description="Folder in diffusers format, relative to the job file; or org/name@revision of the Hugging Face "
        "hub, which each node looks up in its own cache.",
    )
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = Field(
        "float32", description="Type of the frozen weights and of the forward pass."
    )
    options: Options = Field(default_factory=dict, description="Options of the family.")
    memory: MemoryConfig = Field(default_factory=lambda: MemoryConfig.model_validate({}))


class SamplingConfig(Section):
    """How samples are drawn, in training; evaluation uses the same shape."""

    height: Annotated[int, Field(gt=0, description="Pixels.")]
    width: Annotated[int, Field(gt=0, description="Pixels.")]
    num_frames: Annotated[int, Field(ge=1, description="Frames; 1 for images.")] = 1
    num_timesteps: Annotated[int, Field(ge=1, le=MANY, description="Denoising steps T.")] = 10
    sigma_schedule: Word = Field(
        "family",
        description="family (the pipeline's own), linear, dance:SHIFT, sd3_double_shift, sd3_single_shift.",
    )
    guidance_scale: Annotated[float, Field(ge=0, description="Guidance, as the pipeline's argument of that name.")] = (
        1.0
    )
    kernel: Literal["flow_sde", "cps", "dance_sde"] = Field(
        "flow_sde", description="Transition kernel inside the SDE window."
    )
    noise_level: Annotated[float, Field(gt=0, description="Noise level inside the SDE window.")] = 0.7
    rollout_batch: Annotated[int, Field(ge=1, description="Samples a forward pass of the rollout.")] = 16


class AlgorithmConfig(Section):
    """The reinforcement-learning algorithm."""

    name: Word = Field("flow_grpo", description="Algorithm, a plug-in name.")
    options: Options = Field(default_factory=dict, description="Options of the algorithm.")


class DataConfig(Section):
    """Prompts."""

    prompts: Word = Field(
        description="Text with a prompt a line, or a .jsonl, .csv or .parquet file with a column `prompt`, whose other "
        "columns reach the reward as metadata; relative to the job file."
    )
    prompts_per_rollout: Annotated[int, Field(ge=1, description="P: groups a rollout, each of another prompt.")]
    samples_per_prompt: Annotated[
        int, Field(ge=2, le=MANY, description="K: samples a group; a group of one has no advantage.")
    ]


class TrainingConfig(Section):
    """The trainer."""

    global_steps: Annotated[int, Field(ge=1, description="Optimizer steps of the job.")]
    optimizer: Literal["adamw", "adafactor"] = Field(
        "adamw",
        description="adafactor keeps a row and a column of second moments for each matrix, not two copies of it; its "
        "learning rate is relative to a parameter's size, so it wants another one.",
    )
    learning_rate: Annotated[float, Field(gt=0, description="Of the optimizer.")] = 3e-4
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="After the warm-up: as it is, or down to 0 at the last global step."
    )
    warmup_steps: Annotated[
        int, Field(ge=0, description="Global steps in which the learning rate rises from 0, linearly.")
    ] = 0
    trainable: Literal["full", "lora"] = Field("full", description="Full fine-tuning, or a LoRA adapter.")
    lora_rank: Annotated[int, Field(ge=1, description="Rank of the adapter.")] = 32
    lora_alpha: Annotated[float, Field(gt=0, description="Scale of the adapter: alpha / rank.")] = 64.0
    lora_targets: list[Word] = Field(default_factory=list, description="Module names; empty = the family's.")
    init_adapter: Annotated[
        Word | None,
        Field(
            description="Folder with a LoRA as `digenctl export` and diffusers write it, relative to the job file; "
            "of the same rank and alpha. Policy version 0 is that. A fresh adapter where missing."
        ),
    ] = None
    betas: tuple[Beta, Beta] = Field((0.9, 0.999), description="Of AdamW.")
    weight_decay: Annotated[float, Field(ge=0, description="Of AdamW.")] = 1e-4
    epsilon: Annotated[float, Field(gt=0, description="Of AdamW.")] = 1e-8
    max_grad_norm: Annotated[float, Field(gt=0, description="The gradient is scaled down to this norm.")] = 1.0
    ema_decay: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Of an exponential moving average of the weights, published beside them: evaluation samples "
            "with it, and the final pipeline is saved from it. No average where missing.",
        ),
    ] = None
    ema_interval: Annotated[int, Field(ge=1, description="Optimizer steps between two updates of that average.")] = 8
    update_batch: Annotated[int, Field(ge=1, description="Samples a forward pass of the update.")] = 16
    timestep_width: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        1,
        description="TSP: timesteps of a sample batched in one forward pass; 1 = one after another, 0 = all. auto: the "
        "trainer tries 1, 2, 4, ... and all before its first update, and keeps the fastest that fits its memory.",
    )
    updates_per_rollout: Annotated[
        int,
        Field(ge=1, description="Optimizer steps one rollout feeds; divides its number of micro-batches."),
    ] = 1
    spike_factor: Annotated[
        float | None,
        Field(
            gt=1,
            description="A global step whose gradient norm is more than this times the median of the last 32 is "
            "skipped, once 8 are known. None is where missing.",
        ),
    ] = None
    max_skipped_steps: Annotated[
        int, Field(ge=1, description="Skipped global steps in a row after which on_skipped is done.")
    ] = 3
    on_skipped: Literal["hold", "fail"] = Field(
        "hold", description="hold: nothing more is trained until `digenctl resume`. fail: the job fails."
    )
    gradient_checkpointing: bool = Field(False, description="Less memory for more time in the update.")
    publish: Literal["changes", "whole"] = Field(
        "changes",
        description="changes: a policy version is also offered as the elements that differ from the version before "
        "it, exactly, where that is less; whoever lacks that one pulls the whole.",
    )
    publish_dtype: Literal["stored", "model"] = Field(
        "stored",
        description="model: adapters and averages, which are kept in float32, are rounded to model.dtype before they "
        "are sent. Generators then draw with rounded weights, the trainer computes with its own.",
    )
    publish_by: Literal["pull", "broadcast"] = Field(
        "pull",
        description="pull: generators fetch a policy version from the trainer and from each other. broadcast: "
        "torch.distributed sends it to all of them at once (gloo; NCCL where each has a GPU of its own), and a "
        "generator that gets nothing, or comes late, pulls it (docs/operate.md, Weights by broadcast).",
    )
    publish_timeout_s: Annotated[
        float,
        Field(gt=0, le=1e6, description="How long a broadcast may take; whoever has no version by then pulls it."),
    ] = 60.0
    deterministic: bool = Field(False, description="Same seed, same weights, bit for bit (see above for the price).")
    ranks: Annotated[
        int,
        Field(ge=1, le=MANY, description="Trainers that train it as one, each a process on a GPU of its own."),
    ] = 1
    rank_timeout_s: Annotated[
        float,
        Field(gt=0, le=1e6, description="How long the ranks wait for one of them before they are formed anew."),
    ] = 60.0
    replicas: Annotated[
        int | None,
        Field(
            ge=1,
            description="Copies of the weights among the trainer's ranks; divides their number. Each copy is cut into "
            "shards over ranks / replicas of them. Where missing: one copy in full fine-tuning, and with LoRA, whose "
            "base is frozen, one on every rank.",
        ),
    ] = None
    reshard: bool = Field(
        True,
        description="Of weights in shards: a rank gives back what it gathered of the others' after each use. false "
        "keeps weights and gradient of a micro-batch whole: faster, and more memory.",
    )

    @property
    def num_replicas(self) -> int:
        """`replicas`, or what stands for it where it is missing."""
        if self.replicas is not None:
            return self.replicas
        return self.ranks if self.trainable == "lora" else 1


Frames = Annotated[
    Literal["whole", "mean", "min", "max", "first", "middle", "last"],
    Field(
        description="Of a video: the reward gets it whole, or each frame as an image and the mean, min or max counts, "
        "or only one frame."
    ),
]


class RewardConfig(Section):
    """One reward. A job may have several: the reward of a sample is their weighted sum."""

    name: Word = Field(description="Reward, a plug-in name, or file.py:function in a folder that the node file allows.")
    weight: float = Field(1.0, ge=-1e6, le=1e6, description="Factor in the sum.")
    frames: Frames = "whole"
    options: Options = Field(default_factory=dict, description="Options of the reward.")


class MetricConfig(Section):
    """A scorer that evaluation reports and training never sees."""

    name: Word = Field(description="Reward, as in rewards.")
    frames: Frames = "whole"
    options: Options = Field(default_factory=dict, description="Options of the reward.")


class EvalConfig(Section):
    """Fixed-seed evaluation, before and after, and every few global steps."""

    enabled: bool = Field(True, description="Whether to evaluate at all.")
    prompts: Word | None = Field(
        None, description="Text file, relative to the job file; the training prompts where it is missing."
    )
    samples: Annotated[int, Field(ge=1, le=MANY, description="Samples a prompt, before and after.")] = 4
    during_samples: Annotated[int, Field(ge=1, le=MANY, description="Samples a prompt, in between.")] = 4
    every: Annotated[int, Field(ge=0, description="Global steps between evaluations; 0 = only before and after.")] = 0
    num_timesteps: Annotated[
        int | None, Field(ge=1, le=MANY, description="Denoising steps; those of sampling where missing.")
    ] = None
    seed: int = Field(99, description="Of the noise; not that of the job.")
    metrics: list[MetricConfig] = Field(
        default_factory=list, description="Scorers that evaluation reports and training never sees."
    )


class ScheduleConfig(Section):
    """Where and in which pieces work is done."""

    generators: list[Word] | None = Field(
        None,
        description="Generators that may work for the job, as named by `digenctl nodes`; all where missing, "
        "[] = colocated on the trainer.",
    )
    nodes: Annotated[list[Word], Field(min_length=1)] | None = Field(
        None,
        description="Nodes whose workers may be the job's, as named in their node files; all where missing. Jobs that "
        "share no workers run at the same time.",
    )
    partition: Literal["gap", "batch", "naive"] = Field(
        "gap", description="How a rollout is cut (docs/architecture.md)."
    )
    micro_batch_groups: Annotated[int, Field(ge=1, description="m: whole groups a micro-batch.")] = 1
    strategy: Annotated[
        str,
        Field(
            pattern=r"^(never|always|static:\d{1,6}|bts|planned)$",
            examples=["never", "always", "static:2", "bts", "planned"],
            description="Trainer-assisted generation: never, always, static:N, bts or planned (docs/scheduling.md).",
        ),
    ] = "planned"
    staleness: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="TCSS: largest share of a rollout's micro-batches that may be made with the policy version "
            "before, while the trainer ends a global step; 0 is on-policy.",
        ),
    ] = 0.0
    tag_memory: Literal["auto", "shared", "offload"] = Field(
        "auto",
        description="Where what only training needs lies while the trainer generates (TAG). shared: on the device. "
        "offload: in host memory, which costs time at each change. auto: on the device, until its free memory is too "
        "little for that (docs/scheduling.md).",
    )
    tag_checksums: bool = Field(
        False,
        description="With offload: compare checksums of all that waits in host memory, before and after; a difference "
        "fails the job. About two seconds a GB at each change, for debugging.",
    )
    scoring: Literal["colocated", "dedicated"] = Field(
        "colocated", description="Generators score, or reward processes do."
    )
    decode: Literal["generator", "reward"] = Field(
        "generator",
        description="Who decodes what is trained. reward: latents travel to the reward processes, which load the VAE; "
        'only with scoring = "dedicated". Evaluation is always decoded where it is generated.',
    )
    score_samples: Annotated[
        int,
        Field(
            ge=0,
            description="Samples a score task where reward processes score, so that several of them share what one "
            "generator made; 0 = all of it. A service with its own concurrency wants 0.",
        ),
    ] = 0
    lease_s: Annotated[
        float, Field(gt=0, le=1e6, description="A task without progress for this long is given to another worker.")
    ] = 60.0
    score_lease_s: Annotated[
        float,
        Field(
            gt=0,
            le=1e6,
            description="The same of scoring, where a sample scored is progress: a reward that hangs costs so long, "
            "and a restart of its process, for each of the tries of `reward_retries`.",
        ),
    ] = 60.0
    task_retries: Annotated[
        int, Field(ge=0, description="How often a failed task is tried again before the job fails.")
    ] = 3
    reward_retries: Annotated[
        int, Field(ge=0, description="How often a failed score is tried again before the sample is masked.")
    ] = 1
    quorum: Annotated[
        float, Field(gt=0, le=1, description="Share of a group that must be scored, else it is dropped.")
    ] = 0.5


class CheckpointConfig(Section):
    """What a job that lost its trainer goes on from."""

    every: Annotated[int, Field(ge=0, description="Global steps between checkpoints; 0 = only the last.")] = 5
    keep: Annotated[int, Field(ge=1, description="How many checkpoints stay on disk.")] = 3


class JobConfig(Section):
    """A job: one model, one algorithm, its rewards."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
            description="Letters, digits, dot, underscore and dash; at most 63 characters.",
        ),
    ]
    seed: int = Field(0, description="Of prompts, noise and windows. Another seed is another run.")
    model: ModelConfig
    sampling: SamplingConfig
    algorithm: AlgorithmConfig = Field(default_factory=lambda: AlgorithmConfig.model_validate({}))
    data: DataConfig
    training: TrainingConfig
    rewards: Annotated[list[RewardConfig], Field(min_length=1)]
    eval: EvalConfig = Field(default_factory=lambda: EvalConfig.model_validate({}))
    schedule: ScheduleConfig = Field(default_factory=lambda: ScheduleConfig.model_validate({}))
    checkpoint: CheckpointConfig = Field(default_factory=lambda: CheckpointConfig.model_validate({}))
    tracking: TrackingConfig = Field(default_factory=lambda: TrackingConfig.model_validate({}))
    aggregation: Literal["reward_aggr", "advantage_aggr", "normalised_aggr"] = Field(
        "reward_aggr",
        description="Several rewards: the advantage of their weighted sum, the weighted sum of their advantages, or "
        "the advantage of the weighted sum of rewards that are normalised in their group first (docs/rewards.md).",
    )
    keep_pairs: bool = Field(False, description="Record every (prompt, sample, timestep, loss); for tests.")
