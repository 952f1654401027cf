"""Rollout: a fragment's samples from initial noise to pixels, with what training needs of each trajectory.

Owns how samples are dealt into forward batches, and what is kept: latents at the timesteps that are trained and one
after each, as they were scored, and the log-probs. Must not know gradients.

Invariants: initial and step noise of a sample come from its own two seeds, whatever shares its forward pass or its
fragment. A trajectory that is not finite is an error that names the timestep, never a sample.
"""

# Shapes: B samples of one forward pass; "..." the latent dimensions of a sample; n kept latents of a sample.

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from digend.algorithms.spec import Kept
from digend.diffusion.kernels import transition
from digend.engines.arrays import to_array
from digend.engines.flops import shape_of
from digend.engines.jobs import Job
from digend.engines.picture_names import LATENTS, PIXELS
from digend.engines.pictures import is_decoded_by_reward, to_pixels
from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.bundles import pack, unpack
from digend.engines.ranks.dealing import deal_batches
from digend.engines.ranks.peers import Peers
from digend.models.spec import Condition
from digend.wire.refs import BlobRef
from digend.wire.tasks import GenerateResult, GenerateTask, GroupRequest, SampleRequest
from digend.wire.tensors import Array


@dataclass(frozen=True, slots=True)
class _Sample:
    """One sample of the fragment with its group and its embeddings."""

    group: GroupRequest
    request: SampleRequest
    condition: Condition

    @property
    def key(self) -> str:
        return f"{self.group.prompt}/{self.request.index}"


def batches(job: Job, task: GenerateTask) -> list[range]:
    """The forward batches of a task: which of its samples each has, in their order. Ranks are dealt whole batches, so
    that a sample comes out the same however many there are."""
    num_samples, size = sum(len(group.samples) for group in task.groups), job.config.sampling.rollout_batch
    return [range(at, min(at + size, num_samples)) for at in range(0, num_samples, size)]


def generate(job: Job, task: GenerateTask, context: Context, peers: Peers) -> GenerateResult:
    """Roll out, decode and serve. Raises TaskFault("non_finite"), TaskFault("blob_lost") or Cancelled.

    `peers`: the ranks that do it together. They draw a part each, and rank 0 serves all of it.
    """
    _check_version(job, task)
    samples = _samples(job, task, context)
    chunks = [samples[batch.start : batch.stop] for batch in batches(job, task)]
    num_timesteps = len(task.sigmas) - 1
    mine = deal_batches(len(chunks), peers.rank, peers.size)
    trajectory: dict[str, Array] = {}
    pixels: dict[str, Array] = {}
    for done, (number, padding) in enumerate(mine):
        chunk = chunks[number]
        roll = _Roll(job, chunk, task.sigmas)
        if not done:
            roll.count(samples, num_timesteps)
        with context.stage("generate"):
            for index in range(num_timesteps):
                roll.advance(index)
                with peers.agreed():
                    roll.check_finite(index)
                context.progress(done * num_timesteps + index + 1, len(mine) * num_timesteps)
            if not padding:
                trajectory.update(roll.trajectory())
        with peers.agreed(patient=True):  # a rank that drops what it drew waits for those that decode
            if not padding:
                pixels.update(_pictures(job, task, chunk, roll.latents, context))
    if peers.size > 1:
        with context.stage("gather"):
            trajectory, pixels = _collected(peers, trajectory, pixels)
    kept: BlobRef | None = context.serve(trajectory) if trajectory else None
    return GenerateResult(trajectory=kept, samples=context.serve(pixels), num_samples=len(samples))


def _collected(
    peers: Peers, trajectory: dict[str, Array], pixels: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What all ranks have drawn, on rank 0; nothing on the others."""
    parts = [unpack(each) for each in peers.collect(pack({"trajectory": trajectory, "pixels": pixels}))]
    return (
        {name: each for part in parts for name, each in part["trajectory"].items()},
        {name: each for part in parts for name, each in part["pixels"].items()},
    )


class _Roll:
    """One forward batch on its way through the timesteps."""

    def __init__(self, job: Job, samples: Sequence[_Sample], sigmas: Sequence[float]) -> None:
        self._job = job
        self._samples = samples
        self._sigmas = sigmas
        self._rngs = [torch.Generator().manual_seed(each.request.noise_seed) for each in samples]
        initial = [torch.Generator().manual_seed(each.request.initial_seed) for each in samples]
        compute = torch.promote_types(job.model.dtype, torch.float32)
        self.latents = job.model.initial(initial, job.shape).to(compute)
        self._kept: list[list[Tensor]] = [[] for _ in samples]
        self._log_probs: list[list[Tensor]] = [[] for _ in samples]
        self._means: list[list[Tensor]] = [[] for _ in samples]
        chain = "latents" in job.algorithm.keeps
        self._wanted = [_kept_indices(each.request.timesteps if chain else ()) for each in samples]
        self._keep(0)

    @torch.no_grad()
    def advance(self, index: int) -> None:
        """From sigmas[index] to sigmas[index + 1]: one forward pass, one transition for each noise level in it."""
        sigma = self.latents.new_full((len(self._samples),), self._sigmas[index])
        velocity = self._velocity(self.latents, sigma, self._samples)
        following = torch.empty_like(self.latents)
        for level, rows in self._rows_by_level(index).items():
            step = transition(
                kernel=self._job.config.sampling.kernel,
                sample=self.latents[rows],
                velocity=velocity[rows],
                sigmas=self._sigmas,
                index=index,
                level=level,
                rng=[self._rngs[row] for row in rows] if level else None,
            )
            following[rows] = step.next_sample
            if step.log_prob is not None:
                self._note_transition(index, rows, step.log_prob, step.mean)
        self.latents = following
        self._keep(index + 1)

    @torch.no_grad()
    def count(self, samples: Sequence[_Sample], num_timesteps: int) -> None:
        """Charge the forward passes of a whole task, on every rank alike; latents are of one shape."""
        latents, sigma = self.latents[:1], self.latents.new_full((1,), self._sigmas[0])
        for sample in samples:
            shape = ("generate", shape_of(latents[0], sample.condition))
            once = partial(self._velocity, latents, sigma, [sample])
            self._job.meter.add(shape, num_timesteps, once)

    def _velocity(self, latents: Tensor, sigma: Tensor, samples: Sequence[_Sample]) -> Tensor:
        conditions = [each.condition for each in samples]
        job = self._job
        return job.model.velocity(latents, sigma, conditions, job.config.sampling.guidance_scale, job.shape)

    def trajectory(self) -> dict[str, Array]:
        """The tensors of the trajectory blob that the algorithm keeps; nothing for samples that are not trained."""
        return {
            f"{sample.key}/{kept}": to_array(self._tensor(kept, row))
            for row, sample in enumerate(self._samples)
            if sample.request.timesteps
            for kept in self._job.algorithm.keeps
        }

    def _tensor(self, kept: Kept, row: int) -> Tensor:
        """Raises TaskFault("internal") for a transition that had no noise."""
        if kept == "clean":
            return self.latents[row]
        if kept == "latents":
            return torch.stack(self._kept[row])
        noted = self._log_probs[row] if kept == "log_probs" else self._means[row]
        sample = self._samples[row]
        if len(noted) != len(sample.request.timesteps):
            raise TaskFault("internal", f"sample {sample.key} was asked to train a timestep at noise level 0")
        return torch.stack(noted)

    def _rows_by_level(self, index: int) -> dict[float, list[int]]:
        rows: dict[float, list[int]] = {}
        for row, sample in enumerate(self._samples):
            rows.setdefault(sample.group.levels[index], []).append(row)
        return rows

    def _note_transition(self, index: int, rows: Sequence[int], log_prob: Tensor, mean: Tensor) -> None:
        for place, row in enumerate(rows):
            if index in self._samples[row].request.timesteps:
                self._log_probs[row].append(log_prob[place])
                if "means" in self._job.algorithm.keeps:
                    self._means[row].append(mean[place])

    def _keep(self, index: int) -> None:
        for row, wanted in enumerate(self._wanted):
            if index in wanted:
                self._kept[row].append(self.latents[row])

    def check_finite(self, index: int) -> None:
        """After `advance(index)`. Raises TaskFault("non_finite")."""
        finite = torch.isfinite(self.latents).flatten(1).all(1)
        if not bool(finite.all()):
            first = self._samples[int((~finite).nonzero()[0])]
            raise TaskFault("non_finite", f"latents of sample {first.key} are not finite after timestep {index}")


def _kept_indices(timesteps: Sequence[int]) -> frozenset[int]:
    return frozenset(timesteps) | {index + 1 for index in timesteps}


def _check_version(job: Job, task: GenerateTask) -> None:
    """Version 0 is the base in every incarnation."""
    wanted, loaded = (task.incarnation, task.version), (job.incarnation, job.version)
    if wanted != loaded and (task.version, job.version) != (0, 0):
        raise TaskFault(
            "internal",
            f"asked for policy version {task.version} of incarnation {task.incarnation}, "
            f"but version {job.version} of incarnation {job.incarnation} is loaded",
            retry=True,
        )


def _samples(job: Job, task: GenerateTask, context: Context) -> list[_Sample]:
    with context.stage("fetch"):
        conditions = job.conditions.fetch((group.condition for group in task.groups), context)
    return [
        _Sample(group, request, conditions[group.condition.digest])
        for group in task.groups
        for request in group.samples
    ]


def _pictures(
    job: Job, task: GenerateTask, samples: Sequence[_Sample], latents: Tensor, context: Context
) -> dict[str, Array]:
    if is_decoded_by_reward(job.config, task.purpose):
        return _undecoded(samples, latents)
    with context.stage("decode"):
        return _decode(job, samples, latents)


def _decode(job: Job, samples: Sequence[_Sample], latents: Tensor) -> dict[str, Array]:
    """uint8 pixels [3, H, W] or [F, 3, H, W] a sample."""
    pixels = to_pixels(job.model, latents, job.shape)
    return {f"{sample.key}/{PIXELS}": to_array(each) for sample, each in zip(samples, pixels, strict=True)}


def _undecoded(samples: Sequence[_Sample], latents: Tensor) -> dict[str, Array]:
    """The last latents of each sample, for the reward process to decode."""
    return {f"{sample.key}/{LATENTS}": to_array(each) for sample, each in zip(samples, latents, strict=True)}
