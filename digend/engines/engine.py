"""One process's compute: whatever its role is asked to do, one task after another.

Owns the loaded job and, on a trainer, its optimizer. A generator encodes, generates and scores; a trainer does all of
that too (TAG, and colocated jobs), updates, commits and checkpoints; a reward process scores and never loads the model.
Must not know sockets, leases or schedules: the Context stands for all of them.

Invariants: one job is loaded at a time. `check_weights` may be called from another thread while `run` works: it reads
the parameters' names, shapes and types, never their values.
"""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import torch
from pydantic import BaseModel

from digend.algorithms.spec import Objective
from digend.config.job import JobConfig
from digend.config.offload import NONE, Offload, with_offload
from digend.engines import encoding, restoring, rollout, scoring
from digend.engines.broadcasts import Broadcasts
from digend.engines.devices import gpu_name
from digend.engines.jobs import Job, load_job, parse_config, sigma_list
from digend.engines.offloading import Offloading, needs_training_state, offloading_of
from digend.engines.peaks import peak_flops
from digend.engines.pictures import LatePictures, is_decoded_by_reward
from digend.engines.policy import EMA, OLD
from digend.engines.protocols import Cancelled, Circle, Context, LeftS, TaskFault
from digend.engines.publishing import publish
from digend.engines.ranks.handing import blobs_of
from digend.engines.ranks.membership import Membership
from digend.engines.ranks.peers import Alone
from digend.engines.training import Trainer
from digend.models import timing
from digend.plugins import load_object
from digend.wire.broadcasts import Broadcast
from digend.wire.ranks import Ranks
from digend.wire.refs import WeightsRef
from digend.wire.tasks import (
    LOAD,
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
    ScoreResult,
    ScoreTask,
    TaskBody,
    UpdateResult,
    UpdateTask,
)
from digend.wire.tensors import Array

Role = Literal["generator", "trainer", "reward"]


class LocalEngine:
    """The Engine of one process on one device.

    runs_dir: where checkpoints go, `JOB/checkpoints`; state_dir: embeddings' cache; reward_paths: folders from which
    `file.py:function` rewards may come; threads: torch threads, 1 unless cores are idle; peak_flops: operations
    a second of the device in the job's dtype, where the node file knows better than the table; offload: what a
    generator of this box keeps in host memory, whatever the job says; meet_at: the address at which a trainer opens
    stores for broadcasts.
    """

    def __init__(
        self,
        role: Role,
        device: str,
        runs_dir: str | Path,
        state_dir: str | Path,
        reward_paths: Sequence[str | Path] = (),
        threads: int = 1,
        peak_flops: float | None = None,
        offload: Offload = NONE,
        meet_at: str = "127.0.0.1",
    ) -> None:
        torch.set_num_threads(threads)
        if device.startswith("cuda"):
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed by deterministic = true
        self._role = role
        self._device = device
        self._runs_dir = Path(runs_dir).absolute()
        self._state_dir = Path(state_dir).absolute()
        self._reward_paths = [Path(folder) for folder in reward_paths]
        self._peak_flops = peak_flops
        self._offload = offload
        self._membership = Membership(device)
        self._too_wide: dict[str, int] = {}
        self._broadcasts = Broadcasts(device, meet_at)
        self._config: tuple[str, JobConfig] | None = None
        self._job: Job | None = None
        self._trainer: Trainer | None = None
        self._offloading: Offloading | None = None
        self._scorers: list[scoring.Scorer] | None = None
        self._late: LatePictures | None = None
        self._actions: dict[str, Callable[..., ResultBody]] = {
            "prepare": self._prepare,
            "encode": self._encode,
            "generate": self._generate,
            "score": self._score,
            "update": self._update,
            "commit": self._commit,
            "reset": self._reset,
            "checkpoint": self._checkpoint,
        }

    def open_store(self, host: str) -> str:
        """Rank 0: serve the store in which a trainer's ranks meet, at `host`; returns host:port. A second call
        closes the first store. Raises TaskFault("config")."""
        return self._membership.open_store(host)

    def join(self, ranks: Ranks) -> None:
        """Meet the other ranks. Raises TaskFault("rank_lost") where not all come within `ranks.timeout_s`."""
        self._unload()
        self._membership.join(ranks)

    def leave(self) -> None:
        """Be one of several ranks no more; rank 0 says so to those that follow. Waits for nobody, and may be
        called from another thread: what the executor thread is in the middle of raises within the ranks' deadline.
        A job that was loaded in shards is of no use afterwards: `prepare` loads it anew."""
        self._membership.leave()

    def follow(self, context: Context) -> None:
        """Ranks other than 0: do what rank 0 does until it leaves. Raises TaskFault("rank_lost"), and Cancelled where
        `context.progress` does, which is called while nothing is asked."""
        self._membership.follow(context, self._act, self._end)

    def run(self, task: TaskBody, context: Context) -> ResultBody:
        """Raises TaskFault for what the core knows how to handle, Cancelled for a revoked lease."""
        if self._membership.peers.size == 1 or not self._needs_all(task):
            return self._offered(self._act(task, context))
        return self._offered(self._membership.lead(task, context, blobs_of(task, self._job, context), self._act))

    def meet(self, store: str, place: Broadcast, agreed: str, own: str, left_s: LeftS) -> Circle:
        """See `digend.engines.protocols.BroadcastEngine`."""
        return self._broadcasts.meet(store, place, agreed, own, left_s)

    def _offered(self, result: ResultBody) -> ResultBody:
        """A version that was published has a store where the job has it broadcast."""
        if isinstance(result, PrepareResult | CommitResult) and result.weights is not None and self._job is not None:
            config = self._job.config
            if config.training.publish_by == "broadcast" and config.schedule.generators != []:
                return replace(result, weights=replace(result.weights, store=self._broadcasts.open()))
        return result

    def _needs_all(self, task: TaskBody) -> bool:
        """Whether every rank takes part."""
        if isinstance(task, GenerateTask) and self._job is not None:
            return self._job.layout.generates_together or len(rollout.batches(self._job, task)) > 1
        return task.kind in ("prepare", "update", "commit", "reset", "checkpoint")

    def _act(self, task: TaskBody, context: Context) -> ResultBody:
        """This rank's part of a task."""
        try:
            with self._exactness(), timing.told_to(context.stage), self._switched(task, context):
                return self._actions[task.kind](task, context)
        except torch.OutOfMemoryError as error:
            raise TaskFault("out_of_memory", str(error).splitlines()[0], retry=True) from error
        finally:
            if self._job is not None:
                context.computed(self._job.meter.take())

    def check_weights(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> int:
        job = self._loaded(weights.job)
        if weights.num_tensors != len(tensors):
            raise TaskFault(
                "weights", f"{len(tensors)} tensors came, the version was published with {weights.num_tensors}"
            )
        if weights.form != job.policy.form:
            raise TaskFault("weights", f"the version is {weights.form}, the job trains {job.policy.form}")
        return job.policy.check(tensors)

    def adopt(self, weights: WeightsRef, tensors: Mapping[str, Array]) -> None:
        """Raises TaskFault("weights") with nothing changed. A trainer has its own weights and ignores it."""
        if self._role == "trainer":
            return
        job = self._loaded(weights.job)
        self.check_weights(weights, tensors)
        job.policy.bind(tensors)
        job.incarnation, job.version = weights.incarnation, weights.version

    def end(self, job: str) -> None:
        """Unload, on all ranks; a job that is not loaded is no error."""
        self._membership.end(job)
        self._end(job)

    def _end(self, job: str) -> None:
        if self._config is not None and self._config[0] == job:
            self._unload()

    def applied(self, job: str) -> tuple[int, int, tuple[int, ...]]:
        if self._job is None or self._job.id != job:
            return -1, -1, ()
        if self._trainer is None:
            return self._job.version, -1, ()
        return self._job.version, self._trainer.global_step, self._trainer.applied

    # ------------------------------------------------------------------------------------------------ the tasks

    def _prepare(self, task: PrepareTask, context: Context) -> PrepareResult:
        """Load from the folder whatever was loaded before: a new incarnation starts from the checkpoint or base."""
        self._unload()
        config = parse_config(task)
        if self._role == "generator":
            config = with_offload(config, self._offload)
        self._config = (task.job, config)
        try:
            with context.stage("load"):
                if self._role == "reward":
                    if config.schedule.decode == "reward":
                        self._late = LatePictures(config, self._device)
                    self._scorers = scoring.build_scorers(config, self._device, self._reward_paths)
                    return PrepareResult(base_digest="", num_parameters=0, num_trainable=0, sigmas=(), eval_sigmas=())
                peers = self._membership.peers
                with peers.agreed(patient=True):
                    job = load_job(task, config, self._device, trains=self._role == "trainer", peers=peers)
                    if self._scores(config) and peers.rank == 0:
                        self._scorers = scoring.build_scorers(config, self._device, self._reward_paths)
                    self._trainer = _build_trainer(job, self._too_wide) if self._role == "trainer" else None
                _check_base(job)
                if self._trainer is not None:
                    _restore(job, self._trainer, task)
                    self._offloading = offloading_of(job, self._trainer)
            self._job = job
            return self._prepared(job, context)
        except BaseException:
            self._unload()
            raise

    def _prepared(self, job: Job, context: Context) -> PrepareResult:
        sampling, evaluation = job.config.sampling, job.config.eval
        return PrepareResult(
            base_digest=job.base_digest,
            adapter_digest=job.adapter_digest,
            commit=job.commit,
            num_parameters=job.policy.num_parameters,
            num_trainable=job.policy.num_trainable,
            sigmas=sigma_list(job, sampling.num_timesteps),
            eval_sigmas=sigma_list(job, evaluation.num_timesteps or sampling.num_timesteps),
            weights=publish(job, context) if self._role == "trainer" else None,
            peak_flops=job.layout.peers.size
            * (self._peak_flops or peak_flops(gpu_name(self._device), job.config.model.dtype)),
        )

    def _encode(self, task: EncodeTask, context: Context) -> EncodeResult:
        return encoding.encode(self._loaded(task.job), task, context, self._state_dir)

    def _generate(self, task: GenerateTask, context: Context) -> GenerateResult:
        job = self._loaded(task.job)
        with self._drawn_with(job, EMA if task.purpose == "evaluate" else OLD, context):
            return rollout.generate(job, task, context, job.layout.peers if self._needs_all(task) else Alone())

    def _score(self, task: ScoreTask, context: Context) -> ScoreResult:
        if self._config is None or self._config[0] != task.job:
            raise TaskFault("internal", f"job {task.job} is not prepared here", retry=True)
        config = self._config[1]
        if self._scorers is None:
            with context.stage("load"):
                self._scorers = scoring.build_scorers(config, self._device, self._reward_paths)
        late = self._late if is_decoded_by_reward(config, task.purpose) else None
        return scoring.score(self._scorers, task, config.sampling.rollout_batch, context, late)

    def _update(self, task: UpdateTask, context: Context) -> UpdateResult:
        return self._training(task.job).update(task, context)

    def _commit(self, task: CommitTask, context: Context) -> CommitResult:
        return self._training(task.job).commit(task, context)

    def _reset(self, task: ResetTask, context: Context) -> ResetResult:
        self._training(task.job).reset()
        return ResetResult()

    def _checkpoint(self, task: CheckpointTask, context: Context) -> CheckpointResult:
        trainer = self._training(task.job)
        with context.stage("checkpoint"):
            return restoring.save(self._loaded(task.job), trainer, task, self._runs_dir, context)

    # ------------------------------------------------------------------------------------------------ what is loaded

    def _loaded(self, job: str) -> Job:
        if self._job is None or self._job.id != job:
            raise TaskFault("internal", f"job {job} is not prepared here", retry=True)
        return self._job

    def _training(self, job: str) -> Trainer:
        self._loaded(job)
        if self._trainer is None:
            raise TaskFault("internal", f"a {self._role} does not train")
        return self._trainer

    @contextmanager
    def _switched(self, task: TaskBody, context: Context) -> Iterator[None]:
        """Training state is offloaded where a task asks for it and restored where it is needed, not before: several TAG
        in a row offload once. A TAG that fails leaves the trainer ready to train, unless memory ran out."""
        offloading = None if isinstance(task, PrepareTask) else self._offloading
        if offloading is None:
            yield
            return
        if isinstance(task, GenerateTask) and task.offload:
            offloading.offload(context)
        elif needs_training_state(task):
            offloading.restore(context)
        try:
            yield
        except (Cancelled, TaskFault):
            offloading.restore(context)
            raise

    def _scores(self, config: JobConfig) -> bool:
        """Whether scoring will come here, so that a reward that cannot be built fails the job at once."""
        generates = self._role == "generator" or config.schedule.generators == []
        return generates and config.schedule.scoring == "colocated"

    def _unload(self) -> None:
        self._config = self._job = self._trainer = self._offloading = self._scorers = self._late = None
        if self._device.startswith("cuda"):
            gc.collect()
            torch.cuda.empty_cache()

    @contextmanager
    def _drawn_with(self, job: Job, copy: str, context: Context) -> Iterator[None]:
        """The weights that samples are drawn with, and after them those that learn: a trainer's change of mode."""
        stage = context.stage if self._role == "trainer" else nullcontext
        with ExitStack() as weights:
            with stage(LOAD):
                weights.enter_context(job.policy.using(copy))
            try:
                yield
            finally:
                with stage(LOAD):
                    weights.close()

    @contextmanager
    def _exactness(self) -> Iterator[None]:
        """deterministic = true: only algorithms that give the same bits again."""
        wanted = self._config is not None and self._config[1].training.deterministic
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(wanted or before)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def _build_trainer(job: Job, too_wide: dict[str, int]) -> Trainer:
    build = cast(Callable[[BaseModel], Objective], load_object(job.algorithm.objective))
    objective = build(job.algorithm_options)
    if objective.needs_reference:
        job.policy.keep_base()
    if job.algorithm.old_decay is not None:
        job.policy.keep(OLD)
    if job.config.training.gradient_checkpointing:
        _checkpoint_gradients(job)
    return Trainer(job, objective, too_wide)


def _check_base(job: Job) -> None:
    """All ranks must have loaded the same weights. Raises TaskFault("model") that names both digests."""
    peers = job.layout.peers
    first = peers.share(job.base_digest.encode()).decode()
    with peers.agreed():
        if job.base_digest != first:
            raise TaskFault("model", f"{job.config.model.path} is {job.base_digest} here, on rank 0 it is {first}")


def _restore(job: Job, trainer: Trainer, task: PrepareTask) -> None:
    if task.checkpoint is not None:
        restoring.restore(job, trainer, task.checkpoint, task.version, task.checkpoint_digest)
    elif task.version != 0:
        raise TaskFault("checkpoint", f"version {task.version} was asked for without a checkpoint to restore")


def _checkpoint_gradients(job: Job) -> None:
    for name, module in job.model.trainable.items():
        enable = getattr(module, "enable_gradient_checkpointing", None)
        if enable is None:
            raise TaskFault("config", f"training.gradient_checkpointing: {name} does not support it")
        enable()
