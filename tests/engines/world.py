"""What engine tests share: a Context that holds blobs in memory, a tiny job, and the steps of one global step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from digend.config.job import JobConfig
from digend.engines.engine import LocalEngine, Role
from digend.engines.protocols import Cancelled, TaskFault
from digend.rl.seeds import seed_of
from digend.wire.refs import BlobRef
from digend.wire.tasks import (
    CommitResult,
    CommitTask,
    EncodeResult,
    EncodeTask,
    GenerateResult,
    GenerateTask,
    GroupRequest,
    PrepareResult,
    PrepareTask,
    Prompt,
    SampleRequest,
    UpdateItem,
    UpdateResult,
    UpdateTask,
)
from digend.wire.tensors import Array, digest_of, manifest_of
from tests.pipelines import PROMPTS, SIZE

JOB = "job-1"
T = 5
WINDOW = (0, 1, 2)
LEVEL = 0.7
NUM_PAIRS = 18
"""Of a global step as `Bench.groups` makes it: 2 prompts, 3 samples, 3 timesteps."""


class _Stage:
    def __init__(self, names: list[str], name: str) -> None:
        self._names, self._name = names, name

    def __enter__(self) -> None:
        self._names.append(self._name)

    def __exit__(self, *exc: object) -> None:
        return None


@dataclass
class MemoryContext:
    """A Context without sockets. Blobs in `lost` do not answer; `cancel_at` revokes the lease at that progress call."""

    blobs: dict[str, Mapping[str, Array]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    stages: list[str] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    cancel_at: int | None = None
    flops: float = 0.0

    def progress(self, done: int, total: int) -> None:
        self.steps.append((done, total))
        if self.cancel_at is not None and len(self.steps) >= self.cancel_at:
            raise Cancelled

    def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        if ref.id in self.lost or ref.id not in self.blobs:
            raise TaskFault("blob_lost", f"{ref.owner} does not hold {ref.id}")
        held = self.blobs[ref.id]
        return held if names is None else {name: held[name] for name in names}

    def serve(self, tensors: Mapping[str, Array]) -> BlobRef:
        blob = f"blob-{len(self.blobs)}"
        self.blobs[blob] = dict(tensors)
        size = sum(array.num_bytes for array in tensors.values())
        return BlobRef(owner="test", instance="test", id=blob, num_bytes=size, digest=digest_of(manifest_of(tensors)))

    def stage(self, name: str) -> _Stage:
        return _Stage(self.stages, name)

    def computed(self, flops: float) -> None:
        self.flops = flops


def job_config(folder: Path, **changes: Mapping[str, object]) -> JobConfig:
    """A tiny flux job; keywords change single keys of a table: job_config(f, training={"update_batch": 2})."""
    tables: dict[str, dict[str, object]] = {
        "model": {"family": "flux", "path": str(folder), "options": {"max_sequence_length": 8}},
        "sampling": {
            "height": SIZE,
            "width": SIZE,
            "num_timesteps": T,
            "guidance_scale": 3.5,
            "noise_level": LEVEL,
            "rollout_batch": 4,
        },
        "algorithm": {"options": {"window_size": len(WINDOW), "window_range": [0, len(WINDOW)]}},
        "data": {"prompts": "prompts.txt", "prompts_per_rollout": 2, "samples_per_prompt": 3},
        "training": {"global_steps": 3, "learning_rate": 1e-3, "update_batch": 3},
    }
    for table, values in changes.items():
        tables.setdefault(table, {}).update(values)
    return JobConfig.model_validate(
        {"name": "tiny", "seed": 7, "rewards": [{"name": "jpeg_incompressibility"}], **tables}
    )


@dataclass
class Bench:
    """An engine with a prepared job and a context."""

    engine: LocalEngine
    context: MemoryContext
    prepared: PrepareResult
    config: JobConfig
    conditions: dict[str, BlobRef]

    def generate_task(self, *, version: int = 0, step: int = 0, groups: Sequence[GroupRequest] = ()) -> GenerateTask:
        return GenerateTask(
            job=JOB,
            incarnation=0,
            version=version,
            purpose="train",
            global_step=step,
            rollout=step,
            micro_batch=0,
            fragment=0,
            groups=tuple(groups or self.groups(step)),
            sigmas=self.prepared.sigmas,
        )

    def groups(self, step: int = 0, window: Sequence[int] = WINDOW, samples: int = 3) -> list[GroupRequest]:
        """Two prompts; a sample's seeds depend on step, prompt and index alone."""
        return [
            GroupRequest(
                prompt=f"p{number}",
                condition=self.conditions[f"p{number}"],
                levels=tuple(LEVEL if index in window else 0.0 for index in range(T)),
                samples=tuple(
                    SampleRequest(
                        index=index,
                        initial_seed=seed_of("initial", step, number, index),
                        noise_seed=seed_of("noise", step, number, index),
                        timesteps=tuple(window),
                    )
                    for index in range(samples)
                ),
            )
            for number in range(2)
        ]

    def generate(self, task: GenerateTask) -> GenerateResult:
        result = self.engine.run(task, self.context)
        assert isinstance(result, GenerateResult)
        return result

    def items(self, groups: Sequence[GroupRequest], result: GenerateResult) -> list[UpdateItem]:
        """Every sample selected, with advantages of both signs that depend on the sample alone."""
        assert result.trajectory is not None
        return [
            UpdateItem(
                prompt=group.prompt,
                index=sample.index,
                advantage=(-1.0) ** sample.index * (0.5 + 0.25 * sample.index),
                timesteps=sample.timesteps,
                levels=group.levels,
                trajectory=result.trajectory,
                condition=group.condition,
            )
            for group in groups
            for sample in group.samples
        ]

    def update(self, items: Sequence[UpdateItem], *, micro_batch: int = 0, step: int = 0) -> UpdateResult:
        result = self.engine.run(self.update_task(items, micro_batch=micro_batch, step=step), self.context)
        assert isinstance(result, UpdateResult)
        return result

    def commit(
        self, *, version: int = 0, step: int = 0, micro_batches: Sequence[int] = (0,), z: int = NUM_PAIRS
    ) -> CommitResult:
        task = CommitTask(
            job=JOB,
            incarnation=0,
            version=version,
            global_step=step,
            micro_batches=tuple(micro_batches),
            z0=NUM_PAIRS,
            z=z,
        )
        result = self.engine.run(task, self.context)
        assert isinstance(result, CommitResult)
        return result

    def one_step(self, step: int) -> CommitResult:
        """A whole global step on a trainer whose policy version is `step`."""
        groups = self.groups(step)
        self.update(self.items(groups, self.generate(self.generate_task(version=step, step=step))), step=step)
        return self.commit(version=step, step=step)

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The policy's own, by published name."""
        assert self.engine._job is not None
        return self.engine._job.policy.parameters

    def gradient(self) -> dict[str, torch.Tensor | None]:
        return {name: None if each.grad is None else each.grad.clone() for name, each in self.parameters.items()}

    def values(self) -> dict[str, torch.Tensor]:
        return {name: each.detach().clone() for name, each in self.parameters.items()}

    def update_task(
        self, items: Sequence[UpdateItem], *, micro_batch: int = 0, step: int = 0, z0: int = NUM_PAIRS
    ) -> UpdateTask:
        return UpdateTask(
            job=JOB,
            incarnation=0,
            version=step,
            global_step=step,
            rollout=step,
            micro_batch=micro_batch,
            sigmas=self.prepared.sigmas,
            items=tuple(items),
            z0=z0,
        )


def prepare_task(config: JobConfig, checkpoint: str | None = None, version: int = 0) -> PrepareTask:
    return PrepareTask(job=JOB, incarnation=0, config=config.model_dump_json(), checkpoint=checkpoint, version=version)


def same(left: Mapping[str, torch.Tensor | None], right: Mapping[str, torch.Tensor | None]) -> bool:
    """Bit for bit."""
    return left.keys() == right.keys() and all(
        (one is None and other is None) or (one is not None and other is not None and torch.equal(one, other))
        for one, other in ((left[name], right[name]) for name in left)
    )


def bench(
    role: Role,
    config: JobConfig,
    root: Path,
    context: MemoryContext | None = None,
    *,
    checkpoint: str | None = None,
    version: int = 0,
    engine: LocalEngine | None = None,
) -> Bench:
    """A new engine of a role, or this one, with the job prepared and the prompts encoded by it."""
    context = context or MemoryContext()
    engine = engine or LocalEngine(role, "cpu", root / "runs", root / "state")
    prepared = engine.run(prepare_task(config, checkpoint, version), context)
    assert isinstance(prepared, PrepareResult)
    prompts = tuple(Prompt(uid=f"p{number}", text=text) for number, text in enumerate(PROMPTS))
    encoded = engine.run(EncodeTask(job=JOB, incarnation=0, prompts=prompts), context)
    assert isinstance(encoded, EncodeResult)
    return Bench(engine, context, prepared, config, encoded.conditions)
