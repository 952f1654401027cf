"""flow_grpo: what its options mean for the driver, and what its objective is."""

import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from digend.algorithms.flow_grpo import FlowGrpoOptions, build, rules, spec
from digend.algorithms.spec import Pairs, SamplingRules, Velocities
from digend.config.job import JobConfig
from digend.diffusion.kernels import transition
from tests.engines.world import job_config

SIGMAS = (1.0, 0.875, 0.625, 0.25, 0.0)


def config(**sampling: object) -> JobConfig:
    return job_config(Path("model"), sampling={"num_timesteps": 8, **sampling})


def of(**options: object) -> FlowGrpoOptions:
    return FlowGrpoOptions.model_validate(options)


def test_defaults_train_all_timesteps_but_the_last() -> None:
    assert rules(of(), config()) == SamplingRules(window_size=None, window_lo=0, window_hi=7, clip_range=1e-4)


def test_every_option_reaches_the_driver() -> None:
    options = of(
        window_size=3,
        window_range=[1, 6],
        timestep_fraction=0.6,
        timestep_order="random",
        shared_initial_noise=True,
        std="global",
        adv_clip_max=4.0,
        best_of_n=2,
        clip_range=1e-3,
    )
    assert rules(options, config()) == SamplingRules(
        window_size=3,
        window_lo=1,
        window_hi=6,
        timestep_fraction=0.6,
        timestep_order="random",
        shared_initial_noise=True,
        std="global",
        clip_max=4.0,
        best_of_n=2,
        clip_range=1e-3,
    )


def test_a_window_without_a_range_may_lie_anywhere_before_the_last() -> None:
    made = rules(of(window_size=2), config())
    assert (made.window_size, made.window_lo, made.window_hi) == (2, 0, 7)


@pytest.mark.parametrize(
    ("options", "sampling", "words"),
    [
        ({"window_size": 3, "window_range": [0, 9]}, {}, r"algorithm.options.window_range = \[0, 9\]: .*outside"),
        ({"window_size": 3, "window_range": [5, 8]}, {}, "last timestep 7, which flow_sde cannot train"),
        ({"window_size": 3, "window_range": [5, 8]}, {"kernel": "cps"}, "cps cannot train"),
        ({"window_size": 3, "window_range": [2, 4]}, {}, "size 3 does not fit"),
        ({"window_size": 3, "window_range": [-1, 4]}, {}, "does not fit"),
        ({"window_size": 8}, {}, "algorithm.options.window_size = 8"),
        ({"window_range": [0, 3]}, {}, r"window_range = \[0, 3\]: needs algorithm.options.window_size"),
        ({"best_of_n": 4}, {}, "algorithm.options.best_of_n = 4 is more than the 3 samples"),
        ({}, {"num_timesteps": 1}, "sampling.num_timesteps = 1"),
        ({}, {"kernel": "cps", "noise_level": 1.5}, "sampling.noise_level = 1.5"),
    ],
)
def test_what_does_not_fit_the_job_names_its_key(
    options: dict[str, object], sampling: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        rules(of(**options), config(**sampling))


@pytest.mark.parametrize(
    "options",
    [{"clip_range": 0}, {"clip_range": 1.0}, {"best_of_n": 1}, {"std": "all"}, {"kl_coefficient": -1}, {"x": 1}],
)
def test_values_outside_their_bounds_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        of(**options)


def pairs(kernel: str = "flow_sde", shift: float = 0.0) -> tuple[Pairs, torch.Tensor]:
    """Three pairs at different timesteps, and the velocity under which they were sampled. `shift`: of log-probs."""
    rng = torch.Generator().manual_seed(4)
    latents, velocity = (torch.randn(3, 6, 4, generator=rng) for _ in range(2))
    index = torch.tensor([0, 2, 1])
    step = transition(kernel=kernel, sample=latents, velocity=velocity, sigmas=SIGMAS, index=index, level=0.7, rng=rng)
    assert step.log_prob is not None
    made = Pairs(
        latents=latents,
        next_latents=step.next_sample,
        index=index,
        old_log_prob=step.log_prob - shift,
        advantage=torch.tensor([1.0, -2.0, 0.5]),
        level=0.7,
        kernel=kernel,
        sigmas=SIGMAS,
    )
    return made, velocity


def both(velocity: torch.Tensor, delta: float) -> Velocities:
    """A policy, and a base that is `delta` away from it."""
    return Velocities(policy=lambda *_: velocity, reference=lambda *_: velocity + delta)


@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde"])
def test_on_policy_the_loss_is_minus_the_advantage(kernel: str) -> None:
    made, velocity = pairs(kernel)
    seen = []

    def policy(latents: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        seen.append(sigma)
        return velocity

    losses = build(of()).losses(Velocities(policy=policy), made)
    torch.testing.assert_close(losses.losses, -made.advantage)
    assert losses.log_ratio.abs().max() <= 1e-6
    assert not losses.clipped.any()
    assert seen[0].tolist() == [1.0, 0.625, 0.875]


def test_far_from_the_old_policy_the_ratio_is_clipped() -> None:
    made, velocity = pairs(shift=0.01)
    losses = build(of(clip_range=1e-3)).losses(Velocities(policy=lambda *_: velocity), made)
    assert losses.clipped.all()
    assert losses.losses.tolist() == pytest.approx([-1.001, 2 * math.exp(0.01), -0.5005], rel=1e-5)


@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde"])
def test_kl_to_the_reference(kernel: str) -> None:
    made, velocity = pairs(kernel)
    objective = build(of(kl_coefficient=0.5))
    assert objective.needs_reference
    assert not build(of()).needs_reference

    def losses(delta: float) -> list[float]:
        result = objective.losses(both(velocity, delta), made)
        torch.testing.assert_close(result.losses, -made.advantage + 0.5 * result.kl)
        kl: list[float] = result.kl.tolist()
        return kl

    assert losses(0.0) == [0.0, 0.0, 0.0]
    small, large = losses(0.1), losses(0.2)
    assert all(one > 0 for one in small)
    assert large == pytest.approx([4 * one for one in small], rel=1e-3)


def test_flow_sde_kl_has_no_dt() -> None:
    """mean_ref - mean = d * dt * (1 + g^2 (1 - s) / (2 s)); Flow-GRPO divides its square by 2 g^2."""
    made, velocity = pairs()
    result = build(of(kl_coefficient=1.0)).losses(both(velocity, 0.1), made)
    s, dt = 0.625, 0.25 - 0.625
    g2 = 0.7**2 * s / (1 - s)
    moved = 0.1 * dt * (1 + g2 * (1 - s) / (2 * s))
    assert float(result.kl[1]) == pytest.approx(moved**2 / (2 * g2), rel=1e-4)


def test_level_zero_cannot_be_trained() -> None:
    made, velocity = pairs()
    still = Pairs(
        latents=made.latents,
        next_latents=made.next_latents,
        index=made.index,
        old_log_prob=made.old_log_prob,
        advantage=made.advantage,
        level=0.0,
        kernel="flow_sde",
        sigmas=SIGMAS,
    )
    with pytest.raises(ValueError, match="noise level 0"):
        build(of()).losses(Velocities(policy=lambda *_: velocity), still)


@pytest.mark.parametrize("guidance_scale", [0.0, 1.0, 4.5])
def test_the_kl_of_cps_is_warned_of_whatever_the_guidance(guidance_scale: float) -> None:
    job = config(kernel="cps", guidance_scale=guidance_scale)
    (line,) = spec.warnings(of(kl_coefficient=0.04), job)
    assert line.startswith("algorithm.options.kl_coefficient = 0.04: with kernel cps")
    assert not list(spec.warnings(of(), job))
    assert not list(spec.warnings(of(kl_coefficient=0.04), config(guidance_scale=guidance_scale)))


@pytest.mark.parametrize(
    ("clip_range", "words"), [(1e-300, "every pair that moves is clipped"), (0.2, "nothing will ever")]
)
def test_clip_ranges_that_do_nothing_or_too_much_are_warned_of(clip_range: float, words: str) -> None:
    (line,) = spec.warnings(of(clip_range=clip_range), config())
    assert words in line
    assert not list(spec.warnings(of(clip_range=2e-6), config()))
