"""Fifty videos of tiny Wan with guidance: what is encoded, timed, kept, pulled, decoded and scored."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from digend.engines.protocols import TaskFault
from digend.rewards.jpeg import measure_kilobytes
from digend.rl.seeds import seed_of
from digend.wire.refs import BlobRef
from digend.wire.tasks import (
    EncodeResult,
    EncodeTask,
    GroupRequest,
    Prompt,
    SampleRequest,
    ScoreItem,
    ScoreResult,
    ScoreTask,
)
from digend.wire.tensors import Array, to_numpy
from tests.engines.world import JOB, LEVEL, Bench, MemoryContext, T, bench, job_config
from tests.families import FAMILIES

TEXTS = ("a red circle", "a blue square", "a red circle", "a photo", "a green triangle")
SAMPLES = 10
WINDOW = (1, 2)
BATCH = 10
LATENT_BYTES = 4 * (4 * 2 * 4 * 4)
"""float32 of 4 channels, 2 latent frames, 4 x 4."""


@dataclass
class CountingContext(MemoryContext):
    """Remembers the bytes of each pull."""

    pulled: list[int] = field(default_factory=list)

    def pull(self, ref: BlobRef, names: Collection[str] | None = None) -> Mapping[str, Array]:
        found = super().pull(ref, names)
        self.pulled.append(sum(array.num_bytes for array in found.values()))
        return found


def groups(conditions: Mapping[str, BlobRef]) -> list[GroupRequest]:
    return [
        GroupRequest(
            prompt=f"p{number}",
            condition=conditions[f"p{number}"],
            levels=tuple(LEVEL if index in WINDOW else 0.0 for index in range(T)),
            samples=tuple(
                SampleRequest(
                    index=index,
                    initial_seed=seed_of("initial", number, index),
                    noise_seed=seed_of("noise", number, index),
                    timesteps=WINDOW,
                )
                for index in range(SAMPLES)
            ),
        )
        for number in range(len(TEXTS))
    ]


def encoded(worker: Bench, context: CountingContext) -> Mapping[str, BlobRef]:
    prompts = tuple(Prompt(uid=f"p{number}", text=text) for number, text in enumerate(TEXTS))
    result = worker.engine.run(EncodeTask(job=JOB, incarnation=0, prompts=prompts), context)
    assert isinstance(result, EncodeResult)
    return result.conditions


def test_fifty_videos(folders: Callable[[str], Path], tmp_path: Path) -> None:
    family = FAMILIES["wan"]
    sizes = {"rollout_batch": BATCH}
    config = job_config(folders("wan"), **family.tables(sampling=sizes, training={"update_batch": 5}))
    context = CountingContext()
    worker = bench("trainer", config, tmp_path, context)

    context.stages.clear()
    asked = groups(encoded(worker, context))
    assert context.stages.count("encode") == len(set(TEXTS)), "one call a distinct prompt"

    context.stages.clear()
    result = worker.generate(worker.generate_task(groups=asked))
    assert result.num_samples == len(TEXTS) * SAMPLES
    batches = len(TEXTS) * SAMPLES // BATCH
    assert context.stages.count("unconditional") == batches * T, "one a timestep and batch, inside generate"
    assert context.stages.count("decode") == batches

    assert result.trajectory is not None
    kept = len(TEXTS) * SAMPLES * ((len(WINDOW) + 1) * LATENT_BYTES + len(WINDOW) * 4)
    assert result.trajectory.num_bytes == kept
    context.pulled.clear()
    embeddings = sum(group.condition.num_bytes for group in {group.condition.digest: group for group in asked}.values())
    worker.update(worker.items(asked, result))
    assert sum(context.pulled) - kept in (0, embeddings), "the window's latents, and embeddings not yet there"

    scored(worker, context, asked, result.samples)


def scored(worker: Bench, context: CountingContext, asked: list[GroupRequest], samples: BlobRef) -> None:
    """By the mean over frames of a video, each one's own."""
    items = tuple(
        ScoreItem(
            prompt=Prompt(uid=group.prompt, text=TEXTS[number]),
            index=sample.index,
            blob=samples,
        )
        for number, group in enumerate(asked[:2])
        for sample in group.samples
    )
    task = ScoreTask(
        job=JOB, incarnation=0, purpose="train", global_step=0, rollout=0, micro_batch=0, fragment=0, items=items
    )
    result = worker.engine.run(task, context)
    assert isinstance(result, ScoreResult)
    assert len({score.reward for score in result.scores}) > 10
    film = to_numpy(context.blobs[samples.id]["p0/0/pixels"])
    assert film.shape == (5, 3, 32, 32)
    assert film.dtype == np.uint8
    first = result.scores[0].components["jpeg_incompressibility.kilobytes"]
    assert first == np.float64(measure_kilobytes(film.astype(np.float32) / np.float32(255)))


def test_a_video_that_is_not_finite_names_its_timestep(folders: Callable[[str], Path], tmp_path: Path) -> None:
    worker = bench("generator", job_config(folders("wan"), **FAMILIES["wan"].tables()), tmp_path, CountingContext())
    first = next(iter(worker.parameters.values()))
    first.data.fill_(float("nan"))
    with pytest.raises(TaskFault, match="not finite after timestep 0") as fault:
        worker.generate(worker.generate_task())
    assert fault.value.error.reason == "non_finite"
