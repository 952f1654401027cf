"""grpo_guard: its ratio against the formula written out, pair by pair, and what it keeps."""

import pytest
import torch

from digend.algorithms.grpo_guard import GrpoGuardOptions, build, spec
from digend.algorithms.spec import Pairs, Velocities
from digend.diffusion.kernels import transition

SIGMAS = (1.0, 0.875, 0.625, 0.25, 0.0)
LEVEL = 0.7


def guarded(moved: float, clip_range: float = 0.5) -> tuple[Pairs, torch.Tensor, torch.Tensor]:
    """Three pairs drawn under one velocity; the losses under another, `moved` away, and that velocity."""
    rng = torch.Generator().manual_seed(4)
    latents, velocity = (torch.randn(3, 6, 4, generator=rng, dtype=torch.float64) for _ in range(2))
    index = torch.tensor([0, 2, 1])
    step = transition(
        kernel="flow_sde", sample=latents, velocity=velocity, sigmas=SIGMAS, index=index, level=LEVEL, rng=rng
    )
    pairs = Pairs(
        latents=latents,
        next_latents=step.next_sample,
        index=index,
        old_log_prob=step.log_prob,
        old_mean=step.mean,
        advantage=torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64),
        level=LEVEL,
        kernel="flow_sde",
        sigmas=SIGMAS,
    )
    new = velocity + moved * torch.randn(3, 6, 4, generator=rng, dtype=torch.float64)
    options = GrpoGuardOptions.model_validate({"clip_range": clip_range})
    return pairs, build(options).losses(Velocities(policy=lambda *_: new), pairs).losses, new


def test_on_policy_the_loss_is_minus_the_advantage_over_dt() -> None:
    pairs, losses, _ = guarded(0.0)
    torch.testing.assert_close(losses, -pairs.advantage / torch.tensor([0.125, 0.375, 0.25], dtype=torch.float64))


def test_the_bias_is_of_each_pair() -> None:
    """The formula of the paper with scalars; a mean of b over the batch, as in the public code, gives another."""
    pairs, losses, new = guarded(0.3)
    for at, index in enumerate([0, 2, 1]):
        s, dt = SIGMAS[index], SIGMAS[index + 1] - SIGMAS[index]
        g = LEVEL * (s / (1 - (SIGMAS[1] if s == 1 else s))) ** 0.5
        q = (-dt) ** 0.5
        x, following = pairs.latents[at], pairs.next_latents[at]  # type: ignore[index]
        mean = x * (1 + g * g * dt / (2 * s)) + new[at] * (1 + g * g * (1 - s) / (2 * s)) * dt
        old = pairs.old_mean[at]  # type: ignore[index]
        change = float((-((following - mean) ** 2) + (following - old) ** 2).mean()) / (2 * g * g * q * q)
        bias = float(((mean - old) ** 2).mean()) / (2 * (q * g) ** 2)
        ratio = torch.tensor((change + bias) * q * g, dtype=torch.float64).exp()
        expected = -float(pairs.advantage[at]) * float(ratio) / q**2
        assert float(losses[at]) == pytest.approx(expected, rel=1e-9)


def test_its_ratio_is_clipped() -> None:
    pairs, losses, _ = guarded(0.3, clip_range=1e-6)
    bounds = -pairs.advantage / -pairs.dt
    assert ((losses - bounds).abs() <= 1.1e-6 * bounds.abs()).sum() >= 1


def test_means_travel() -> None:
    assert spec.keeps == ("latents", "log_probs", "means")
