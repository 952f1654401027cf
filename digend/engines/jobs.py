"""A job as one process holds it: the parsed job file, the loaded model and the policy.

Owns the step from a PrepareTask to a loaded job, and the sigma lists that the driver pins into every request. Must not
know tasks other than that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel, ValidationError

from digend.algorithms.spec import AlgorithmSpec
from digend.config.job import JobConfig
from digend.engines import memory
from digend.engines.adapters import start_from_adapter
from digend.engines.conditions import Conditions
from digend.engines.digests import folder_digest
from digend.engines.flops import FlopMeter
from digend.engines.policy import Adapter, Policy
from digend.engines.protocols import TaskFault
from digend.engines.ranks.layout import Layout, OneRank
from digend.engines.ranks.peers import Alone, Peers
from digend.hub import commit_of, local_folder
from digend.models.pipelines import left_in_host_memory
from digend.models.spec import Model, ModelSpec, Shape
from digend.plugins import algorithm_spec, load_object, model_spec, validate_options
from digend.rl import sigmas as sigma_schedules
from digend.wire.tasks import PrepareTask
from digend.wire.tensors import Array

Load = Callable[[str, str, str, BaseModel], Model]


@dataclass(slots=True, kw_only=True)
class Job:
    """One loaded job. `incarnation` and `version` are those of the policy's present weights; version 0 is the base."""

    id: str
    incarnation: int
    config: JobConfig
    family: ModelSpec
    model_options: BaseModel
    algorithm: AlgorithmSpec
    algorithm_options: BaseModel
    shape: Shape
    model: Model
    policy: Policy
    layout: Layout
    """Where the policy's weights are, among a trainer's ranks."""
    conditions: Conditions
    base_digest: str
    adapter_digest: str
    """Of the adapter that the policy started from; "" where it was a fresh one."""
    commit: str
    """Of the hub, where the model came from there."""
    version: int
    meter: FlopMeter
    published: tuple[int, Mapping[str, Array]] | None = None
    """The newest version that was offered, and its number: what the next one's changes are told against."""


def parse_config(task: PrepareTask) -> JobConfig:
    """Raises TaskFault("config")."""
    try:
        return JobConfig.model_validate_json(task.config)
    except ValidationError as error:
        raise TaskFault("config", f"the job file is refused: {error}") from error


def load_job(
    task: PrepareTask, config: JobConfig, device: str, *, trains: bool = False, peers: Peers | None = None
) -> Job:
    """Load model and policy; `trains`: in the process that updates it, one of `peers` where there are several.

    Raises TaskFault("config") for options, TaskFault("model") for the folder.
    """
    try:
        family = model_spec(config.model.family)
        model_options = validate_options(family, config.model.options, "model.options")
        algorithm = algorithm_spec(config.algorithm.name)
        algorithm_options = validate_options(algorithm, config.algorithm.options, "algorithm.options")
        loader = cast(Load, load_object(family.loader))
    except ValueError as error:  # PluginError and PluginOptionError
        raise TaskFault("config", str(error)) from error
    shape = Shape(height=config.sampling.height, width=config.sampling.width, num_frames=config.sampling.num_frames)
    peers = peers or Alone()
    # What is cut into shards goes to the device block by block: the whole of it need not fit.
    cut = family.trainable if peers.shards > 1 else ()
    with left_in_host_memory({*memory.left_out(config, family, trains=trains), *cut}):
        model, base_digest, commit = _load_model(config, loader, device, model_options)
    try:
        model.check(shape)
    except ValueError as error:
        raise TaskFault("config", str(error)) from error
    memory.before_adapter(model, config)
    sent_as = config.model.dtype if config.training.publish_dtype == "model" else None
    policy = Policy(model, _adapter(config, family), ema=config.training.ema_decay is not None, sent_as=sent_as)
    adapter_digest = start_from_adapter(policy, model.trainable, config.training)
    memory.after_adapter(model, config, family, trains=trains)
    layout = _layout(model, policy, family, config, peers)
    return Job(
        id=task.job,
        incarnation=task.incarnation,
        config=config,
        family=family,
        model_options=model_options,
        algorithm=algorithm,
        algorithm_options=algorithm_options,
        shape=shape,
        model=model,
        policy=policy,
        layout=layout,
        conditions=Conditions(),
        base_digest=base_digest,
        adapter_digest=adapter_digest,
        commit=commit,
        version=0,
        meter=FlopMeter(model.device, policy.parameters.values()),
    )


def _layout(model: Model, policy: Policy, family: ModelSpec, config: JobConfig, peers: Peers) -> Layout:
    """Weights in shards where there are fewer replicas than ranks. Raises TaskFault("config")."""
    if peers.size == 1:
        return OneRank()
    from digend.engines.ranks.joined import Joined
    from digend.engines.ranks.replicated import Replicated
    from digend.engines.ranks.sharded import shard

    assert isinstance(peers, Joined)
    if peers.shards == 1:
        return Replicated(peers)
    layout = shard(model, family, peers, reshard=config.training.reshard)
    policy.relaid(layout.exchange)
    return layout


def _load_model(config: JobConfig, loader: Load, device: str, options: BaseModel) -> tuple[Model, str, str]:
    """The model, the digest of its folder, and the commit where it came from the hub."""
    try:
        folder = local_folder(config.model.path)
        model = loader(str(folder), device, config.model.dtype, options)
        return model, folder_digest(folder), commit_of(folder)
    except (OSError, ValueError) as error:
        raise TaskFault("model", str(error)) from error


def _adapter(config: JobConfig, family: ModelSpec) -> Adapter | None:
    training = config.training
    if training.trainable == "full":
        return None
    return Adapter(
        rank=training.lora_rank,
        alpha=training.lora_alpha,
        targets=training.lora_targets or family.lora_targets,
        seed=config.seed,
    )


def sigma_list(job: Job, num_timesteps: int) -> tuple[float, ...]:
    """The sigma schedule that `sampling.sigma_schedule` names. Raises TaskFault("config")."""
    schedule = job.config.sampling.sigma_schedule
    name, _, argument = schedule.partition(":")
    try:
        if name == "family":
            return tuple(sigma_schedules.check(job.model.sigmas(num_timesteps, job.shape)))
        arguments: Sequence[float] = (float(argument),) if argument else ()
        return sigma_schedules.schedule(name)(num_timesteps, *arguments)
    except (ValueError, TypeError) as error:
        raise TaskFault("config", f"sampling.sigma_schedule = {schedule!r}: {error}") from error
