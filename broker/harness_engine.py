"""The engine of a simulated worker: what its process holds, and what each task makes of it. No time, no messages.

Must not know the core. Like the real engines, a task that fails leaves nothing behind; unlike them it checks what it is
asked for against what it holds, and whatever can never be right raises `InvariantBroken`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from broker.harness_world import BASE_POLICY, Blob, Draw, InvariantBroken, OptimizerStep, Pair, Snapshot, World
from digend.rl.seeds import uniform_int
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tasks import (
    CheckpointResult,
    CheckpointTask,
    CommitResult,
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    PrepareResult,
    PrepareTask,
    ResetResult,
    ResetTask,
    ResultBody,
    SampleScore,
    ScoreResult,
    ScoreTask,
    TaskBody,
    TaskError,
    UpdateItem,
    UpdateResult,
    UpdateTask,
)
from digend.wire.workers import PreparedJob, Role

NUM_TENSORS = 5
SIGMAS = (1.0, 0.75, 0.5, 0.25, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for one worker process after another; `speed` counts relative to the others of its pool."""

    name: str
    role: Role
    speed: Fraction = Fraction(1)
    numbers: Mapping[str, str] = field(default_factory=dict)
    base_digest: str = "base"
    encoder: str = "encoder"
    """Embeddings of workers with unlike encoders differ."""
    device: str = "simulated"
    interface: str = ""
    host: str = ""
    broadcasts: bool = False
    """A trainer that opens a store for each version, so that it is broadcast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a scorer is asked about. `attempt` counts from 0 for this sample on this process."""

    job: str
    purpose: str
    rollout: int
    prompt: str
    index: int
    attempt: int


Scorer = Callable[[Sample], SampleScore]


def honest(sample: Sample) -> SampleScore:
    """A reward in [0, 1] that depends on the sample alone."""
    reward = uniform_int(0, 1000, "reward", sample.job, sample.rollout, sample.prompt, sample.index) / 1000
    return SampleScore(prompt=sample.prompt, index=sample.index, reward=reward, components={"reward": reward})


@dataclass(slots=True)
class Loaded:
    """A job whose model the process has loaded. `gradient`: (micro-batch, its z0, its pairs) since the last commit."""

    incarnation: int
    version: int = 0
    policy: str = BASE_POLICY
    global_step: int = -1
    gradient: list[tuple[int, int, tuple[Pair, ...]]] = field(default_factory=list)

    @property
    def applied(self) -> tuple[int, ...]:
        return tuple(micro_batch for micro_batch, _, _ in self.gradient)


@dataclass(slots=True, eq=False)
class Engine:
    """One process's compute. `perform` is called when a task begins, `adopt` when it has succeeded."""

    slot: Slot
    instance: str
    world: World
    scorer: Scorer
    scores_at_once: bool
    loaded: dict[str, Loaded] = field(default_factory=dict)
    staged: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """(job, incarnation, version) -> policy"""
    training: bool = True
    _attempts: dict[tuple[str, str, int, str, int], int] = field(default_factory=dict)

    def inventory(self) -> tuple[PreparedJob, ...]:
        """What HELLO says of each loaded job."""
        return tuple(self._prepared(job, loaded) for job, loaded in self.loaded.items())

    def _prepared(self, job: str, loaded: Loaded) -> PreparedJob:
        incarnation = max((key[1] for key in self.staged if key[0] == job), default=loaded.incarnation)
        return PreparedJob(
            job=job,
            incarnation=incarnation,
            version=loaded.version,
            staged=tuple(sorted(key[2] for key in self.staged if key[:2] == (job, incarnation))),
            global_step=loaded.global_step,
            applied=loaded.applied,
        )

    def unload(self, job: str) -> None:
        self.loaded.pop(job, None)
        self.staged = {key: policy for key, policy in self.staged.items() if key[0] != job}

    def switches(self, task: TaskBody) -> bool:
        """Whether the task needs the trainer's other mode (and puts it there)."""
        if self.slot.role != "trainer" or task.kind not in ("generate", "update", "commit"):
            return False
        before, self.training = self.training, task.kind != "generate"
        return before != self.training

    def drop(self, result: ResultBody) -> None:
        """The task did not succeed: nobody will ever hear of its blobs."""
        for ref in outputs(result):
            self.world.blobs[self.instance].pop(ref.id, None)

    def pairs(self, task: TaskBody) -> tuple[Pair, ...]:
        """What an update puts into the gradient; pulled when it begins."""
        if not isinstance(task, UpdateTask):
            return ()
        return tuple(
            Pair(
                rollout=task.rollout,
                micro_batch=task.micro_batch,
                prompt=item.prompt,
                index=item.index,
                timestep=timestep,
                advantage=item.advantage,
                policy=self._draw(item).policy,
            )
            for item in task.items
            for timestep in item.timesteps
        )

    def _draw(self, item: UpdateItem) -> Draw:
        """How the sample was rolled out, checked against how it is trained on."""
        blob = self.world.find(item.trajectory)
        draw = blob.draws.get(f"{item.prompt}/{item.index}") if blob else None
        if draw is None or draw.timesteps != item.timesteps or draw.condition != item.condition.digest:
            raise InvariantBroken(f"{item} is trained on what was rolled out as {draw}")
        return draw

    def perform(self, task: TaskBody) -> ResultBody | TaskError:
        """What the task comes to. Changes nothing but for new blobs."""
        if isinstance(task, PrepareTask):
            return self._prepare(task)
        loaded = self.loaded.get(task.job)
        if loaded is None:
            raise InvariantBroken(f"{self.slot.name} is asked to {task.kind} before it has loaded {task.job}")
        return _PERFORM[type(task)](self, loaded, task)

    def adopt(self, task: TaskBody, pairs: tuple[Pair, ...], result: ResultBody) -> None:
        """The task succeeded: what the process holds from now on."""
        if isinstance(task, PrepareTask):
            policy = self.world.disk[task.checkpoint].policy if task.checkpoint else BASE_POLICY
            self.loaded[task.job] = Loaded(incarnation=task.incarnation, version=task.version, policy=policy)
            return
        loaded = self.loaded[task.job]
        if isinstance(task, UpdateTask):
            loaded.global_step = task.global_step
            loaded.gradient.append((task.micro_batch, task.z0, pairs))
        elif isinstance(task, CommitTask) and isinstance(result, CommitResult):
            self._step(loaded, task, result)
        elif isinstance(task, ResetTask):
            loaded.gradient = []
        elif isinstance(task, CheckpointTask) and isinstance(result, CheckpointResult):
            self.world.disk[result.path] = Snapshot(
                job=task.job, version=task.version, global_step=task.global_step, policy=loaded.policy
            )

    # ------------------------------------------------------------------------------------------------- tasks

    def _keep(self, kind: str, job: str, digest: str, draws: Mapping[str, Draw] | None = None) -> BlobRef:
        blob = Blob(kind=kind, job=job, digest=digest, draws=draws or {})
        return self.world.keep(self.instance, f"inproc://{self.instance}", blob)

    def _prepare(self, task: PrepareTask) -> ResultBody:
        weights = None
        if self.slot.role == "trainer":
            saved = self.world.disk.get(task.checkpoint) if task.checkpoint else None
            if (saved.version if saved else 0) != task.version:
                raise InvariantBroken(f"prepare names version {task.version}, the checkpoint is {saved}")
            weights = self._publish(task.job, task.incarnation, task.version, saved.policy if saved else BASE_POLICY)
        return PrepareResult(
            base_digest=self.slot.base_digest,
            num_parameters=1,
            num_trainable=1,
            sigmas=SIGMAS,
            eval_sigmas=SIGMAS,
            weights=weights,
        )

    def _publish(self, job: str, incarnation: int, version: int, policy: str) -> WeightsRef:
        blob = self._keep("weights", job, policy)
        return WeightsRef(
            blob=blob,
            job=job,
            incarnation=incarnation,
            version=version,
            num_tensors=NUM_TENSORS,
            form="full",
            store=f"{self.instance}:{blob.id}" if self.slot.broadcasts else "",
        )

    def _encode(self, loaded: Loaded, task: EncodeTask) -> ResultBody:
        return EncodeResult(
            conditions={
                prompt.uid: self._keep("condition", task.job, f"{self.slot.encoder}: {prompt.text}")
                for prompt in task.prompts
            }
        )

    def _policy_for(self, loaded: Loaded, task: GenerateTask) -> str:
        if self.slot.role == "trainer":
            if task.version != loaded.version:
                raise InvariantBroken(f"the trainer has version {loaded.version}, {task.version} is asked for")
            return loaded.policy
        key = (task.job, task.incarnation, task.version)
        if key not in self.staged:
            raise InvariantBroken(f"{self.slot.name} is to generate under {key}, which it has not staged")
        return self.staged[key]

    def _generate(self, loaded: Loaded, task: GenerateTask) -> ResultBody:
        policy = self._policy_for(loaded, task)
        asked = [(group, sample) for group in task.groups for sample in group.samples]
        draws = {
            f"{group.prompt}/{sample.index}": Draw(
                policy=policy, condition=group.condition.digest, timesteps=sample.timesteps
            )
            for group, sample in asked
        }
        if len(draws) != len(asked):
            raise InvariantBroken(f"a sample is asked for twice in {task}")
        train = task.purpose == "train"
        scored = asked if self.scores_at_once else []
        return GenerateResult(
            trajectory=self._keep("trajectory", task.job, "latents", draws) if train else None,
            samples=self._keep("samples", task.job, "pixels", draws),
            num_samples=len(draws),
            scores=tuple(self._ask(task, group.prompt, sample.index) for group, sample in scored),
        )

    def _score(self, loaded: Loaded, task: ScoreTask) -> ResultBody:
        for item in task.items:
            blob = self.world.find(item.blob)
            if blob is None or f"{item.prompt.uid}/{item.index}" not in blob.draws:
                raise InvariantBroken(f"sample {item.prompt.uid}/{item.index} is not in the blob it is scored from")
        return ScoreResult(scores=tuple(self._ask(task, item.prompt.uid, item.index) for item in task.items))

    def _ask(self, task: GenerateTask | ScoreTask, prompt: str, index: int) -> SampleScore:
        key = (task.job, task.purpose, task.rollout, prompt, index)
        attempt = self._attempts[key] = self._attempts.get(key, -1) + 1
        return self.scorer(
            Sample(
                job=task.job,
                purpose=task.purpose,
                rollout=task.rollout,
                prompt=prompt,
                index=index,
                attempt=attempt,
            )
        )

    def _update(self, loaded: Loaded, task: UpdateTask) -> ResultBody | TaskError:
        if task.micro_batch in loaded.applied or (loaded.gradient and task.global_step != loaded.global_step):
            message = f"{loaded.applied} of global step {loaded.global_step} are applied"
            return TaskError(reason="applied", message=message, retry=False)
        num = sum(len(item.timesteps) for item in task.items)
        return UpdateResult(
            num_pairs=num, loss_sum=0.5 * num, clipped=0, ratio_sum=float(num), max_abs_log_ratio=0.0, kl_sum=0.0
        )

    def _commit(self, loaded: Loaded, task: CommitTask) -> ResultBody | TaskError:
        if sorted(task.micro_batches) != sorted(loaded.applied) or task.version != loaded.version:
            message = f"commit of {task.micro_batches} on {task.version}; {loaded.applied} on {loaded.version} is here"
            return TaskError(reason="applied", message=message, retry=False)
        made = self.world.new_policy(loaded.policy)
        weights = self._publish(task.job, loaded.incarnation, task.version + 1, made)
        return CommitResult(gradient_norm=1.0, learning_rate=1e-4, weights=weights)

    def _step(self, loaded: Loaded, task: CommitTask, result: CommitResult) -> None:
        made = result.weights.blob.digest if result.weights else None
        self.world.ledger.append(
            OptimizerStep(
                job=task.job,
                incarnation=loaded.incarnation,
                global_step=task.global_step,
                version=task.version,
                policy=loaded.policy,
                made=made,
                micro_batches=loaded.applied,
                pairs=tuple(pair for _, _, pairs in loaded.gradient for pair in pairs),
                z0s=tuple(z0 for _, z0, _ in loaded.gradient),
                z0=task.z0,
                z=task.z,
            )
        )
        loaded.global_step, loaded.gradient = task.global_step + 1, []
        if made is not None:
            loaded.version, loaded.policy = task.version + 1, made

    def _reset(self, loaded: Loaded, task: ResetTask) -> ResultBody:
        return ResetResult()

    def _checkpoint(self, loaded: Loaded, task: CheckpointTask) -> ResultBody:
        if (task.version, task.incarnation) != (loaded.version, loaded.incarnation) or loaded.gradient:
            raise InvariantBroken(f"{task} of a trainer with {loaded}")
        path = f"{task.job}/{task.incarnation}/{task.global_step}"
        return CheckpointResult(path=path, digest=loaded.policy, pipeline=f"{path}/pipeline" if task.final else None)


_PERFORM: dict[type, Callable[..., ResultBody | TaskError]] = {
    EncodeTask: Engine._encode,
    GenerateTask: Engine._generate,
    ScoreTask: Engine._score,
    UpdateTask: Engine._update,
    CommitTask: Engine._commit,
    ResetTask: Engine._reset,
    CheckpointTask: Engine._checkpoint,
}


def inputs(task: TaskBody) -> list[BlobRef]:
    """Blobs a task pulls."""
    if isinstance(task, GenerateTask):
        return [group.condition for group in task.groups]
    if isinstance(task, ScoreTask):
        return [item.blob for item in task.items]
    if isinstance(task, UpdateTask):
        return [ref for item in task.items for ref in (item.trajectory, item.condition)]
    return []


def outputs(result: ResultBody) -> list[BlobRef]:
    """Blobs a result names."""
    if isinstance(result, GenerateResult):
        return [result.samples] + ([result.trajectory] if result.trajectory else [])
    if isinstance(result, EncodeResult):
        return list(result.conditions.values())
    if isinstance(result, PrepareResult | CommitResult):
        return [result.weights.blob] if result.weights else []
    return []
