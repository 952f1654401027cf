"""What the core knows of a job: numbers and names, no paths but those it passes on. The driver makes it."""

from dataclasses import dataclass
from fractions import Fraction

from digend.rl.advantages import Std
from digend.rl.aggregation import Aggregation
from digend.rl.windows import Move, Order
from digend.wire.refs import CheckpointRef
from digend.wire.tasks import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRules:
    """The algorithm's driver-side rules (an algorithm's `rules()` gives them)."""

    noise_level: float
    window_size: int | None
    """SDE window per group; None = all trainable timesteps."""
    window_lo: int
    window_hi: int
    """Start is drawn in [lo, hi - size], inclusive."""
    window_move: Move = "group"
    """Drawn for each group or each global step, or moved on by one each `window_every` global steps."""
    window_every: int = 1
    window_roll_back: bool = False
    ode: bool = False
    """No noise, so no window: any timestep may be trained."""
    kernel: str = "flow_sde"
    timestep_fraction: float = 1.0
    timestep_order: Order = "first"
    """first (flow_grpo) or random (DanceGRPO): which of the window's timesteps are trained."""
    shared_initial_noise: bool = False
    std: Std = "group"
    """group, global (a declared barrier) or none."""
    ddof: int = 0
    eps: float = 1e-4
    clip_max: float = 5.0
    best_of_n: int | None = None
    clip_range: float | None = None
    """Of the importance ratio; None where there is none."""
    quorum: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRules:
    """Fixed-seed evaluation; `every` = 0: before and after only."""

    prompts: tuple[Prompt, ...]
    samples: int
    during_samples: int
    every: int
    seed: int
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    id: str
    name: str
    config: str
    """Resolved job file as JSON: passed to workers, not read by the core."""
    seed: int
    num_global_steps: int
    updates_per_rollout: int
    prompts: tuple[Prompt, ...]
    prompts_per_rollout: int
    samples_per_prompt: int
    micro_batch_groups: int
    partition: str
    """gap, batch or naive."""
    strategy: str
    """never, always, static:N, bts or planned."""
    tag_memory: str = "auto"
    """shared, offload or auto: where what only training needs lies while the trainer generates."""
    scoring: str
    """colocated or dedicated."""
    score_samples: int = 0
    """Samples a score task where reward processes score; 0: a fragment."""
    generators: tuple[str, ...] | None
    """Names (or roles' slots) allowed to generate; None = all; () = colocated on the trainer."""
    nodes: tuple[str, ...] | None = None
    """Names of nodes whose workers may be the job's; None = all."""
    num_timesteps: int
    rules: RolloutRules
    evaluation: EvalRules
    checkpoint_every: int
    deterministic: bool
    lease_s: float
    score_lease_s: float | None = None
    """Of scoring; None: as others."""
    staleness: float = 0.0
    """TCSS: largest share of a rollout's micro-batches made with the version before."""
    reward_retries: int
    task_retries: int
    max_skipped_steps: int
    on_skipped: str = "hold"
    """hold or fail, after so many in a row."""
    aggregation: Aggregation = "reward_aggr"
    """How several rewards become one advantage."""
    ratio_rule: float | None = None
    """What |log ratio| may be before the first update, by the model's number type; None: no such rule."""
    reward_weights: tuple[tuple[str, float], ...] = ()
    """(label, weight) of each reward, as components of a score name it."""
    keep_pairs: bool = False
    ranks: int = 1
    """Trainers that train it as one."""
    replicas: int = 1
    """Copies of what the ranks shard."""
    rank_timeout_s: float = 60.0
    """How long ranks wait for each other before they are given up."""
    publish_timeout_s: float = 60.0
    """How long a broadcast of a policy version may take."""
    origin: CheckpointRef | None = None
    """Of a fork: the other job's checkpoint that it starts from. Global steps go on from there."""

    def __post_init__(self) -> None:
        if self.aggregation == "advantage_aggr" and self.rules.std == "global":
            raise ValueError(
                'aggregation = advantage_aggr with std = "global": each reward is normalised in its group; '
                "normalised_aggr goes with it"
            )
        if self.updates_per_rollout > self.prompts_per_rollout:
            raise ValueError(
                f"training.updates_per_rollout = {self.updates_per_rollout}: a rollout has only "
                f"{self.prompts_per_rollout} groups"
            )
        if self.staleness and self.updates_per_rollout > 1:
            raise ValueError(
                f"schedule.staleness = {self.staleness} with training.updates_per_rollout = "
                f"{self.updates_per_rollout}: samples would be more than one version old"
            )
        if self.num_micro_batches % self.updates_per_rollout:
            raise ValueError(
                f"training.updates_per_rollout = {self.updates_per_rollout} does not divide the "
                f"{self.num_micro_batches} micro-batches of a rollout"
            )

    @property
    def first_global_step(self) -> int:
        """How many global steps are done when the job begins."""
        return 0 if self.origin is None else self.origin.global_step

    @property
    def stale_quota(self) -> int:
        """floor(staleness x B), exactly; a colocated trainer has no tail to fill."""
        return 0 if self.generators == () else int(Fraction(repr(self.staleness)) * self.num_micro_batches)

    @property
    def num_micro_batches(self) -> int:
        """B: micro-batches a rollout. `naive` is B = 1 (one per update where updates_per_rollout > 1)."""
        if self.partition == "naive":
            return self.updates_per_rollout
        return -(-self.prompts_per_rollout // self.micro_batch_groups)
