"""`std = "global"`, two optimizer steps a rollout and a KL against a plain script: float64 gradients to 1e-10.

The script is this file's own: one sample, one timestep after another, from the formulas. It shares the model with what
it checks, and nothing of digend.algorithms or digend.engines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from digend.models.spec import Shape
from digend.rl.advantages import AdvantageRule, normalise_groups
from digend.wire.tasks import CommitTask, UpdateTask
from digend.wire.tensors import Array
from tests.engines.world import JOB, LEVEL, WINDOW, bench, job_config
from tests.pipelines import SIZE

REWARDS = {"p0": (1.0, 3.0, 0.5), "p1": (0.0, 2.0, 7.0)}
CLIP, BETA, GUIDANCE = 1e-5, 0.04, 3.5
Sample = tuple[str, int]


def tensor_of(array: Array) -> Tensor:
    return torch.frombuffer(bytearray(array.data), dtype=getattr(torch, array.dtype)).reshape(array.shape)


class Script:
    """Holds the rollout. Velocities of the base, and the rollout's log-probs, are those of the weights at first."""

    def __init__(self, model: Any, sigmas: Sequence[float], conditions: Mapping[str, Any], blob: Mapping[str, Array]):
        self.model, self.sigmas, self.conditions = model, sigmas, conditions
        self.latents = {
            (uid, index): tensor_of(blob[f"{uid}/{index}/latents"]).double() for uid in REWARDS for index in range(3)
        }
        with torch.no_grad():
            first = {(sample, at): self.step(sample, at) for sample in self.latents for at in WINDOW}
        self.base = {place: mean for place, (mean, _) in first.items()}
        self.old = {place: log_prob for place, (_, log_prob) in first.items()}

    def g(self, at: int) -> float:
        s = self.sigmas[at]
        d = self.sigmas[1] if s > 1 - 1e-3 else s
        return LEVEL * math.sqrt(s / (1 - d))

    def step(self, sample: Sample, at: int) -> tuple[Tensor, Tensor]:
        """Mean of the transition, and log-prob of where it went."""
        s, dt, g = self.sigmas[at], self.sigmas[at + 1] - self.sigmas[at], self.g(at)
        x, reached = self.latents[sample][at], self.latents[sample][at + 1]
        shape = Shape(height=SIZE, width=SIZE, num_frames=1)
        sigma = torch.tensor([s], dtype=torch.float64)
        v = self.model.velocity(x[None], sigma, [self.conditions[sample[0]]], GUIDANCE, shape)[0]
        mean = x * (1 + g * g / (2 * s) * dt) + v * (1 + g * g * (1 - s) / (2 * s)) * dt
        sd = g * math.sqrt(-dt)
        return mean, (-((reached - mean) ** 2) / (2 * sd * sd)).mean() - math.log(sd) - math.log(2 * math.pi) / 2

    def advantages(self) -> dict[Sample, float]:
        """Of each group its mean is taken off; all are divided by the deviation of all rewards."""
        every = [reward for rewards in REWARDS.values() for reward in rewards]
        middle = sum(every) / len(every)
        std = math.sqrt(sum((reward - middle) ** 2 for reward in every) / len(every))
        return {
            (uid, index): (reward - sum(rewards) / len(rewards)) / (std + 1e-4)
            for uid, rewards in REWARDS.items()
            for index, reward in enumerate(rewards)
        }

    def gradient(self, uid: str, parameters: Sequence[Tensor], first: bool) -> tuple[Tensor, ...]:
        """Of the mean loss over one group's pairs. `first`: its samples are of the weights of now."""
        pairs = [((uid, index), at) for index in range(3) for at in WINDOW]
        total = torch.zeros((), dtype=torch.float64)
        for sample, at in pairs:
            mean, log_prob = self.step(sample, at)
            old = log_prob.detach() if first else self.old[sample, at]
            ratio, advantage = torch.exp(log_prob - old), self.advantages()[sample]
            clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
            kl = ((mean - self.base[sample, at]) ** 2).mean() / (2 * self.g(at) ** 2)
            total = total + torch.maximum(-advantage * ratio, -advantage * clipped) + BETA * kl
        return torch.autograd.grad(total / len(pairs), parameters, allow_unused=True)


def test_both_steps_of_a_rollout_have_the_scripts_gradient(flux_folder: Path, tmp_path: Path) -> None:
    options = {"std": "global", "kl_coefficient": BETA, "clip_range": CLIP}
    window = {"window_size": len(WINDOW), "window_range": [0, len(WINDOW)]}
    config = job_config(
        flux_folder,
        model={"dtype": "float64"},
        algorithm={"options": {**options, **window}},
        training={"updates_per_rollout": 2, "learning_rate": 1e-4},
    )
    on = bench("trainer", config, tmp_path)
    groups = on.groups()
    result = on.generate(on.generate_task(groups=groups))
    assert result.trajectory is not None
    assert on.engine._job is not None
    conditions = {
        uid: {name: tensor_of(each) for name, each in on.context.pull(ref).items()}
        for uid, ref in on.conditions.items()
    }
    script = Script(on.engine._job.model, on.prepared.sigmas, conditions, on.context.pull(result.trajectory))
    dealt = normalise_groups(REWARDS, AdvantageRule(std="global"))
    for step, uid in enumerate(REWARDS):
        expected = script.gradient(uid, list(on.parameters.values()), first=step == 0)
        items = [item for item in on.items(groups, result) if item.prompt == uid]
        scored = [
            _with_advantage(item, advantage) for item, advantage in zip(items, dealt[uid].advantages, strict=True)
        ]
        z = len(scored) * len(WINDOW)
        task = UpdateTask(
            job=JOB,
            incarnation=0,
            version=0,
            global_step=step,
            rollout=0,
            micro_batch=step,
            sigmas=on.prepared.sigmas,
            items=tuple(scored),
            z0=z,
        )
        on.engine.run(task, on.context)
        found = on.gradient()
        largest = 0.0
        for name, wanted in zip(on.parameters, expected, strict=True):
            if wanted is not None:
                gradient = found[name]
                assert gradient is not None
                assert float((gradient - wanted).abs().max()) <= 1e-10, (step, name)
                largest = max(largest, float(wanted.abs().max()))
        assert largest > 1e-4
        commit = CommitTask(job=JOB, incarnation=0, version=step, global_step=step, micro_batches=(step,), z0=z, z=z)
        on.engine.run(commit, on.context)


def _with_advantage(item: Any, advantage: float | None) -> Any:
    return replace(item, advantage=advantage)
