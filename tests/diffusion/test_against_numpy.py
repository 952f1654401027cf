"""Kernels, log-probs, the KL and the losses on random inputs, against the published formulas in numpy's float64."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from digend.algorithms.diffusion_nft import DiffusionNftOptions
from digend.algorithms.diffusion_nft import build as build_nft
from digend.algorithms.spec import Pairs, Velocities
from digend.diffusion import clipped_objective, kl_to_reference, transition
from digend.rl.advantages import convention, normalise_groups
from digend.rl.sigmas import dance, flux, sd3_double_shift, sd3_single_shift

Numbers = NDArray[np.float64]
SCHEDULES = {
    "sd3": sd3_double_shift(10),
    "single": sd3_single_shift(7),
    "dance": dance(16),
    "flux": flux(6, 0.9),
    "almost 1": (0.9996665, 0.97, 0.8, 0.3, 0.0),
}
TOLERANCE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


def formula(kernel: str, x: Numbers, v: Numbers, s: float, following: float, first: float, level: float) -> Any:
    """Mean, total standard deviation. `first`: the second sigma of the list, for s = 1."""
    dt = following - s
    if kernel == "flow_sde":
        g = level * np.sqrt(s / (1 - (first if s > 1 - 1e-3 else s)))
        return x * (1 + g**2 * dt / (2 * s)) + v * (1 + g**2 * (1 - s) / (2 * s)) * dt, g * np.sqrt(-dt)
    if kernel == "cps":
        g = following * np.sin(level * np.pi / 2)
        return (1 - following) * (x - s * v) + np.sqrt(following**2 - g**2) * (x + (1 - s) * v), g
    clean = x - s * v
    score = -(x - (1 - s) * clean) / s**2
    return x + dt * v - 0.5 * level**2 * score * dt, level * np.sqrt(-dt)


def log_density(kernel: str, x_next: Numbers, mean: Numbers, sd: float) -> float:
    error = (x_next - mean) ** 2
    if kernel == "cps":
        return float(-error.mean())
    return float((-error / (2 * sd**2) - np.log(sd) - 0.5 * np.log(2 * np.pi)).mean())


@pytest.mark.parametrize("name", list(SCHEDULES))
@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde"])
def test_transitions(kernel: str, name: str) -> None:
    sigmas, rng = SCHEDULES[name], np.random.default_rng(5)
    for index in range(len(sigmas) - 2):
        level = float(rng.uniform(0.1, 0.95))
        x, v, x_next = rng.normal(size=(3, 2, 3, 4))
        out = transition(
            kernel=kernel,
            sample=torch.from_numpy(x),
            velocity=torch.from_numpy(v),
            sigmas=sigmas,
            index=index,
            level=level,
            next_sample=torch.from_numpy(x_next),
        )
        mean, sd = formula(kernel, x, v, sigmas[index], sigmas[index + 1], sigmas[1], level)
        np.testing.assert_allclose(out.mean.numpy(), mean, **TOLERANCE)
        np.testing.assert_allclose(out.std.flatten().numpy(), [sd, sd], **TOLERANCE)
        assert out.log_prob is not None
        densities = [log_density(kernel, x_next[row], mean[row], sd) for row in range(2)]
        np.testing.assert_allclose(out.log_prob.numpy(), densities, **TOLERANCE)


def test_the_clipped_objective_and_the_kl() -> None:
    rng = np.random.default_rng(6)
    for clip_range in (1e-5, 1e-4, 1e-3, 0.2):
        new, old = rng.normal(size=(2, 50)) * 2 * clip_range
        advantage = rng.normal(size=50)
        ratio = np.exp(new - old)
        expected = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 1 - clip_range, 1 + clip_range))
        log_prob, before, signed = (torch.from_numpy(each) for each in (new, old, advantage))
        out = clipped_objective(log_prob, before, signed, clip_range)
        np.testing.assert_allclose(out.loss.numpy(), expected, **TOLERANCE)
        np.testing.assert_array_equal(out.clipped.numpy(), np.abs(ratio - 1) > clip_range)
    mean, reference = rng.normal(size=(2, 5, 3, 4))
    std, dt = rng.uniform(0.1, 2, 5), -rng.uniform(0.01, 0.3, 5)
    error = ((mean - reference) ** 2).mean((1, 2))
    with_dt = kl_to_reference(*(torch.from_numpy(each) for each in (mean, reference, std, dt)))
    np.testing.assert_allclose(with_dt.numpy(), error / (2 * (std / np.sqrt(-dt)) ** 2), **TOLERANCE)
    without = kl_to_reference(*(torch.from_numpy(each) for each in (mean, reference, std)))
    np.testing.assert_allclose(without.numpy(), error / (2 * std**2), **TOLERANCE)


@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_diffusion_nft(beta: float) -> None:
    rng = np.random.default_rng(7)
    sigmas, index = (0.9, 0.6, 0.2, 0.0), np.array([0, 1, 2, 1])
    clean, noise, new, old, base = rng.normal(size=(5, 4, 3, 4))
    advantage = np.array([0.8, -3.0, 7.0, 0.0])
    t = np.array(sigmas)[index][:, None, None]
    x = (1 - t) * clean + t * noise
    share = np.clip(np.clip(advantage, -5, 5) / 5 / 2 + 0.5, 0, 1)

    def pull(velocity: Numbers) -> Numbers:
        error = x - t * velocity - clean
        made: Numbers = (error**2).mean((1, 2)) / np.maximum(np.abs(error).mean((1, 2)), 1e-5)
        return made

    plus, minus = pull(beta * new + (1 - beta) * old), pull((1 + beta) * old - beta * new)
    expected = 5 * (share * plus + (1 - share) * minus) / beta + 1e-4 * ((new - base) ** 2).mean((1, 2))
    pairs = Pairs(
        latents=torch.from_numpy(x),
        clean=torch.from_numpy(clean),
        index=torch.from_numpy(index),
        advantage=torch.from_numpy(advantage),
        level=0.0,
        kernel="flow_sde",
        sigmas=sigmas,
    )
    policy, sampler, reference = (torch.from_numpy(each) for each in (new, old, base))
    velocities = Velocities(policy=lambda *_: policy, old=lambda *_: sampler, reference=lambda *_: reference)
    losses = build_nft(DiffusionNftOptions.model_validate({"beta": beta})).losses(velocities, pairs).losses
    np.testing.assert_allclose(losses.numpy(), expected, **TOLERANCE)


@pytest.mark.parametrize(("name", "ddof", "eps"), [("flow_grpo", 0, 1e-4), ("dance", 1, 1e-8)])
def test_advantages(name: str, ddof: int, eps: float) -> None:
    rewards = np.random.default_rng(8).normal(size=(6, 9))
    groups = {str(row): tuple(values.tolist()) for row, values in enumerate(rewards)}
    for std, width in (("group", rewards.std(1, ddof=ddof)[:, None]), ("global", rewards.std(ddof=ddof))):
        made = normalise_groups(groups, convention(name, std=std))  # type: ignore[arg-type]
        expected = np.clip((rewards - rewards.mean(1)[:, None]) / (width + eps), -5, 5)
        found = np.array([made[str(row)].advantages for row in range(6)], dtype=np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
