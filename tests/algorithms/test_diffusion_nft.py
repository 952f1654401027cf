"""diffusion_nft: golden values, its modes, what the driver draws for it, and the policy that samples."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from broker.plan import plan_rollout
from broker.spec import RolloutRules
from digend.algorithms.diffusion_nft import DiffusionNftOptions, build, old_decay, rules
from digend.algorithms.spec import Pairs, Velocities
from digend.config.job import JobConfig
from tests.broker.support import job
from tests.engines.world import job_config

T = 0.6


def config(**sampling: object) -> JobConfig:
    return job_config(Path("model"), sampling={"num_timesteps": 10, **sampling}, algorithm={"name": "diffusion_nft"})


def of(**options: object) -> DiffusionNftOptions:
    return DiffusionNftOptions.model_validate(options)


def loss(advantage: float, **options: object) -> float:
    """x0 = sin j, e = cos 2j, v = cos(j / 2), v_old = v + .1 sin j, v_base = .9 v, j = 0 .. 15, at t = .6."""
    j = torch.arange(16, dtype=torch.float64).reshape(1, 1, 4, 4)
    clean, noise, velocity = j.sin(), (2 * j).cos(), (j / 2).cos()
    pairs = Pairs(
        latents=(1 - T) * clean + T * noise,
        clean=clean,
        index=torch.tensor([0]),
        advantage=torch.tensor([advantage], dtype=torch.float64),
        level=0.0,
        kernel="flow_sde",
        sigmas=(T, 0.0),
    )
    velocities = Velocities(
        policy=lambda *_: velocity, old=lambda *_: velocity + 0.1 * clean, reference=lambda *_: 0.9 * velocity
    )
    return float(build(of(**options)).losses(velocities, pairs).losses)


@pytest.mark.parametrize(("beta", "policy"), [(1.0, 5.0556285), (0.1, 50.776660)])
def test_golden_values(beta: float, policy: float) -> None:
    """The policy's part, and the whole with 1e-4 mean((v - v_base)^2)."""
    assert loss(0.8, beta=beta, kl_coefficient=0.0) == pytest.approx(policy, rel=1e-6)
    j = torch.arange(16, dtype=torch.float64)
    away = float((0.1 * (j / 2).cos()).square().mean())
    assert loss(0.8, beta=beta) == pytest.approx(policy + 1e-4 * away, rel=1e-6)


def test_the_parts_of_good_and_bad_samples() -> None:
    """At the bound of the advantage only L+ or only L- is left."""
    assert loss(5.0, kl_coefficient=0.0) == pytest.approx(5 * 0.977333, rel=1e-5)
    assert loss(-7.0, kl_coefficient=0.0) == pytest.approx(5 * 1.057791, rel=1e-5)
    assert loss(5.0, beta=0.1, kl_coefficient=0.0) == pytest.approx(50 * 1.012150, rel=1e-6)
    assert loss(-5.0, beta=0.1, kl_coefficient=0.0) == pytest.approx(50 * 1.020205, rel=1e-6)


def test_the_share_of_the_good_policy() -> None:
    """A = .8 of at most 5: rho = .58."""
    good, bad = (loss(advantage, kl_coefficient=0.0) for advantage in (5.0, -5.0))
    assert (loss(0.8, kl_coefficient=0.0) - bad) / (good - bad) == pytest.approx(0.58, abs=1e-12)


def test_a_perfect_prediction_is_divided_by_the_least_width() -> None:
    """No error at all is 0, not 0 / 0; one of 1e-6 everywhere is divided by 1e-5."""
    clean = torch.zeros(1, 4, dtype=torch.float64)
    pairs = Pairs(
        latents=clean,
        clean=clean,
        index=torch.tensor([0]),
        advantage=torch.tensor([5.0], dtype=torch.float64),
        level=0.0,
        kernel="flow_sde",
        sigmas=(1.0, 0.0),
    )
    objective = build(of(kl_coefficient=0.0))
    for error, expected in ((0.0, 0.0), (1e-6, 5 * 1e-12 / 1e-5), (1e-3, 5 * 1e-3)):
        velocity = torch.full_like(clean, error)
        velocities = Velocities(policy=lambda *_, v=velocity: v, old=lambda *_, v=velocity: v)
        assert float(objective.losses(velocities, pairs).losses) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("mode", "advantage", "same_as"),
    [
        ("positive_only", -2.0, 0.0),
        ("negative_only", 2.0, 0.0),
        ("one_only", 3.0, 1.0),
        ("one_only", -3.0, 0.0),
        ("binary", -0.2, -1.0),
    ],
)
def test_modes(mode: str, advantage: float, same_as: float) -> None:
    assert loss(advantage, adv_mode=mode) == loss(same_as)


def test_the_rollout_is_the_ode_and_any_timestep_may_be_trained() -> None:
    drawn = rules(of(), config())
    own = {each.name: getattr(drawn, each.name) for each in fields(drawn)}
    spec = job(num_timesteps=10, rules=RolloutRules(noise_level=0.7, **own))
    groups = [group for step in range(5) for batch in plan_rollout(spec, step) for group in batch]
    assert {group.levels for group in groups} == {(0.0,) * 10}
    chosen = [sample.timesteps for group in groups for sample in group.samples]
    assert {len(each) for each in chosen} == {9}
    assert {index for each in chosen for index in each} == set(range(10))
    assert len(set(chosen)) > 1


def test_how_much_the_policy_that_samples_keeps() -> None:
    assert [old_decay(of(decay_type=0), n) for n in (1, 100)] == [0.0, 0.0]
    assert [old_decay(of(decay_type=1), n) for n in (1, 100, 900)] == pytest.approx([0.001, 0.1, 0.5])
    assert [old_decay(of(decay_type=2), n) for n in (75, 77, 900)] == pytest.approx([0.0, 0.015, 0.999])
