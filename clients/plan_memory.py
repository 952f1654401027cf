"""The memory of a job's workers: from the model's folder or a published size, and what to change where it is too much.

Owns the meeting of a job file with footprints. Reads headers and configurations, never weights, and needs no torch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from clients.jobs import NotFound
from clients.plan_inputs import layout_of, pairs_of, width_of
from digend import plugins
from digend.config.errors import nearest
from digend.config.job import JobConfig
from digend.config.offload import NONE, Offload, with_offload
from digend.hub import cached_folder
from digend.models.components import Part, read_components
from digend.models.footprint import (
    ITEM_BYTES,
    NOT_MEASURED,
    Footprint,
    Generating,
    Saving,
    Training,
    footprint,
    learned_numbers,
    while_generating,
)
from digend.models.geometry import Geometry, generating_bytes, training_bytes
from digend.models.sizes import SIZES, Size
from digend.models.spec import Shape

GIB = 1 << 30
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".onnx")
ESTIMATED = "activations (estimated)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """By worker; or why nothing is known. `refusals`: what does not fit, with what to change."""

    workers: Mapping[str, Footprint]
    not_measured: Sequence[str]
    trained: str = ""
    unknown: str = ""
    refusals: Sequence[str] = ()
    generating: Mapping[str, Generating] = field(default_factory=dict)
    """Of trainers, while they generate."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """`gib`: what the device has, None where nobody said; `offload`: what its box keeps in host memory; `trainers`: how
    many could be ranks of the job."""

    role: str
    gib: float | None = None
    offload: Offload = NONE
    trainers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What is known of one without loading it."""

    components: Sequence[Part]
    transformer: Mapping[str, Any] | None


def memory_of(job: JobConfig, workers: Mapping[str, Worker], size: str | None) -> Memory:
    """Raises NotFound as `pipeline_of` does."""
    try:
        model = pipeline_of(job, size)
    except (OSError, ValueError) as error:
        return Memory(workers={}, not_measured=NOT_MEASURED, unknown=str(error))
    found = {name: _footprint(_there(job, worker), model, worker.role) for name, worker in workers.items()}
    missing = () if _geometry(job, model) else ("activations",)
    generating = {
        name: while_generating(found[name], ESTIMATED, _rollout(job, model))
        for name, worker in workers.items()
        if worker.role == "trainer"
    }
    return Memory(
        workers=found,
        not_measured=(*missing, *NOT_MEASURED),
        trained=_trained(job, model),
        refusals=list(_refusals(job, model, workers, found)),
        generating=generating,
        notes=list(_notes(workers, generating)),
    )


def pipeline_of(job: JobConfig, size: str | None) -> Pipeline:
    """Raises NotFound for a size that there is not, or that is of another family; OSError or ValueError where the
    folder cannot be read."""
    if size:
        return _published(job, size)
    try:
        return _read(job)
    except (OSError, ValueError) as error:
        sizes = ", ".join(name for name, each in SIZES.items() if each.family == job.model.family)
        raise ValueError(f"{error}; --size takes a published one: {sizes}" if sizes else str(error)) from error


def _rollout(job: JobConfig, model: Pipeline) -> int:
    """Bytes of a generator's activations, as far as they can be estimated."""
    geometry = _geometry(job, model)
    return _activations(job, geometry, "generator") if geometry else 0


def _notes(workers: Mapping[str, Worker], generating: Mapping[str, Generating]) -> Iterator[str]:
    """How a trainer can generate in the memory it has."""
    for name, each in generating.items():
        gib = workers[name].gib
        if gib is None or each.shared <= gib * GIB:
            continue
        if each.offloaded <= gib * GIB:
            yield (
                f"{name}: TAG needs {each.shared / GIB:.1f} GiB as it is; offloaded (schedule.tag_memory) "
                f"{each.offloaded / GIB:.1f} GiB, with {each.waiting / GIB:.1f} GiB moved at each switch"
            )
        else:
            yield f"{name}: no room for TAG, which needs {each.offloaded / GIB:.1f} GiB even offloaded"


def _there(job: JobConfig, worker: Worker) -> JobConfig:
    """The job as its box runs it."""
    return with_offload(job, worker.offload) if worker.role == "generator" else job


def _published(job: JobConfig, name: str) -> Pipeline:
    size: Size | None = SIZES.get(name)
    if size is None:
        near = nearest(name, SIZES)
        raise NotFound(f"no size {name}" + (f"; did you mean {near}?" if near else f"; known: {', '.join(SIZES)}"))
    if size.family != job.model.family:
        raise NotFound(f"{name} is of the family {size.family}, the job's is {job.model.family}")
    return Pipeline(components=size.components, transformer=size.transformer)


def _read(job: JobConfig) -> Pipeline:
    folder = cached_folder(job.model.path) or Path(job.model.path)
    config = folder / "transformer" / "config.json"
    components = read_components(str(folder))
    return Pipeline(
        components=components, transformer=json.loads(config.read_text("utf-8")) if config.is_file() else None
    )


def training_of(job: JobConfig) -> Training:
    """What learns, as footprints want it."""
    spec = plugins.model_spec(job.model.family)
    lora = job.training.trainable == "lora"
    reference = not lora and bool(job.algorithm.options.get("kl_coefficient"))
    return Training(
        trainable=spec.trainable,
        rank=job.training.lora_rank if lora else None,
        targets=job.training.lora_targets or spec.lora_targets,
        optimizer=job.training.optimizer,
        averages=int(job.training.ema_decay is not None),
        copies=int(reference),
        units=spec.sharding_units,
    )


def _trained(job: JobConfig, model: Pipeline) -> str:
    training = training_of(job)
    trained = [each for each in model.components if each.name in training.trainable]
    whole = sum(each.num_parameters for each in trained)
    numbers = learned_numbers(model.components, training)
    names = " and ".join(each.name for each in trained)
    learned = f"{numbers:,}" if training.rank is None else f"{numbers:,} of a LoRA adapter of rank {training.rank}"
    return f"{names}: {whole:,} parameters, {learned} learn"


def _geometry(job: JobConfig, model: Pipeline) -> Geometry | None:
    spec = plugins.model_spec(job.model.family)
    if not spec.geometry or model.transformer is None:
        return None
    shape = Shape(height=job.sampling.height, width=job.sampling.width, num_frames=job.sampling.num_frames)
    options = plugins.validate_options(spec, job.model.options, "model.options")
    compute = cast(Callable[..., Geometry], plugins.load_object(spec.geometry))
    return compute(model.transformer, shape, options, job.sampling.guidance_scale)


def _footprint(job: JobConfig, model: Pipeline, role: str) -> Footprint:
    rewards = _reward_bytes(job)
    if role == "reward":
        late = [each for each in model.components if each.name == "vae" and job.schedule.decode == "reward"]
        item = max(ITEM_BYTES[job.model.dtype], ITEM_BYTES["float32"])
        return Footprint(device={**{each.name: each.num_parameters * item for each in late}, **rewards}, host={})
    geometry, memory = _geometry(job, model), job.model.memory
    saving = Saving(
        offload_encoders=memory.offload_encoders,
        casting=memory.layerwise_casting != "none",
        offload_blocks=memory.offload_blocks,
        layers=geometry.layers if geometry else 0,
    )
    extra = {ESTIMATED: _activations(job, geometry, role)} if geometry else {}
    if job.schedule.scoring == "colocated" and (role == "generator" or job.schedule.generators == []):
        extra |= rewards
    return footprint(model.components, job.model.dtype, training_of(job), role, saving, extra, layout_of(job))


def _activations(job: JobConfig, geometry: Geometry, role: str) -> int:
    """A trainer generates too; its update needs more."""
    item, training = ITEM_BYTES[job.model.dtype], job.training
    generating = generating_bytes(geometry, job.sampling.rollout_batch, item)
    if role != "trainer":
        return generating
    # A width that is measured is one that fits.
    width = 1 if training.timestep_width == "auto" else width_of(job)
    pairs = min(training.update_batch * width, -(-pairs_of(job) // training.ranks))
    checkpointing = training.gradient_checkpointing
    return max(generating, training_bytes(geometry, pairs, item, checkpointing=checkpointing))


def _reward_bytes(job: JobConfig) -> dict[str, int]:
    """By the files of the folders that rewards name; one that names none has no weights of its own."""
    found: dict[str, int] = {}
    for reward in job.rewards:
        named = [Path(value).expanduser() for value in reward.options.values() if isinstance(value, str)]
        files = [file for path in named if path.exists() for file in (path.rglob("*") if path.is_dir() else [path])]
        weights = sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS)
        if weights:
            found[f"reward {reward.name}"] = weights
    return found


def _refusals(
    job: JobConfig, model: Pipeline, workers: Mapping[str, Worker], found: Mapping[str, Footprint]
) -> Iterator[str]:
    for name, worker in workers.items():
        needed = found[name].device_bytes
        if worker.gib is None or needed <= worker.gib * GIB:
            continue
        advice = advice_of(_there(job, worker), model, worker)
        yield f"{name} needs {needed / GIB:.1f} GiB, and {worker.gib:g} GiB are there; {advice}"


def advice_of(job: JobConfig, model: Pipeline, worker: Worker) -> str:
    """The first single change that makes it fit, or changes one on top of the other, the largest saving first."""
    role, available = worker.role, (worker.gib or 0.0) * GIB
    for key, other in _changes(job, worker.trainers):
        if needed_bytes(other, model, role) <= available:
            return f"with {key} it would need {needed_bytes(other, model, role) / GIB:.1f} GiB"
    changed, made = job, dict[str, str]()
    while needed_bytes(changed, model, role) > available:
        options = [(needed_bytes(other, model, role), key, other) for key, other in _changes(changed, worker.trainers)]
        best = min(options, key=lambda each: each[0], default=None)
        if best is None or best[0] >= 0.999 * needed_bytes(changed, model, role):
            left = needed_bytes(changed, model, role) / GIB
            tried = f" (with {', '.join(made.values())} it still needs {left:.1f} GiB)" if made else ""
            return f"no option of the job makes it fit{tried}: a larger device, or a smaller model"
        made[best[1].partition(" = ")[0]] = best[1]
        changed = best[2]
    return f"with {', '.join(made.values())} it would need {needed_bytes(changed, model, role) / GIB:.1f} GiB"


def needed_bytes(job: JobConfig, model: Pipeline, role: str) -> int:
    """Of the device."""
    return _footprint(job, model, role).device_bytes


def whole_only(job: JobConfig) -> str:
    """Why ranks need whole weights each; "" where they may have shards."""
    if job.training.optimizer == "adafactor":
        return 'training.optimizer = "adafactor"'
    if job.model.memory.layerwise_casting != "none":
        return "model.memory.layerwise_casting"
    family = plugins.model_spec(job.model.family)
    return "" if len(family.trainable) == 1 or family.experts else " and ".join(family.trainable)


def _changes(job: JobConfig, trainers: int) -> Iterator[tuple[str, JobConfig]]:
    """Single keys that save memory and are not set so already; first those that change no numbers."""
    lora = job.training.trainable == "lora"
    more = {"reshard": True, "replicas": 1} if job.training.ranks > 1 else {}
    if trainers > job.training.ranks == 1 and not lora and not whole_only(job):
        more = {"ranks": trainers}
    wanted: list[tuple[str, str, object]] = [
        ("model.memory", "offload_encoders", True),
        ("model.memory", "offload_blocks", 1),
        ("training", "gradient_checkpointing", True),
        ("training", "timestep_width", 1),
        ("training", "update_batch", max(1, job.training.update_batch // 2)),
        ("sampling", "rollout_batch", max(1, job.sampling.rollout_batch // 2)),
        *(("training", key, value) for key, value in more.items()),
        ("training", "trainable", "lora"),
        *([("model", "dtype", "bfloat16")] if job.model.dtype in ("float32", "float64") else []),
        *([("model.memory", "layerwise_casting", "float8_e4m3fn")] if lora else []),
    ]
    document = job.model_dump(mode="json")
    for table, key, value in wanted:
        place: Any = document
        for part in table.split("."):
            place = place[part]
        before = place[key]
        if before != value:
            place[key] = value
            shown = json.dumps(value)
            yield f"{table}.{key} = {shown}", JobConfig.model_validate(document)
            place[key] = before
