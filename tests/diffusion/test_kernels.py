"""One function samples and replays. Golden values come from flow_grpo's and DanceGRPO's functions."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal

from digend.diffusion import Transition, predicted_clean, transition
from digend.rl.sigmas import dance, flux, sd3_double_shift

torch.set_num_threads(1)

SD3 = sd3_double_shift(10)
LEVELS = {"flow_sde": 0.7, "cps": 0.8, "dance_sde": 0.3}
KERNELS = st.sampled_from(sorted(LEVELS))
INDEXES = st.integers(0, 8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensors(num: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """A sample and a velocity of [num, 3, 4, 5]."""
    both = torch.randn(2, num, 3, 4, 5, generator=seeded(seed), dtype=torch.float64).to(dtype)
    return both[0], both[1]


def golden_tensors() -> tuple[Tensor, Tensor, Tensor]:
    j = torch.arange(16, dtype=torch.float64)
    x, v = torch.sin(j), torch.cos(j / 2)
    x_next = x + 0.1 * torch.sin(3 * j)
    x, v, x_next = torch.stack([x, v, x_next]).float().reshape(3, 1, 1, 4, 4)
    return x, v, x_next


def run(kernel: str, x: Tensor, v: Tensor, index: Any, **more: Any) -> Transition:
    arguments = {"sigmas": SD3, "level": LEVELS.get(kernel, 0.0), **more}
    return transition(kernel=kernel, sample=x, velocity=v, index=index, **arguments)


@pytest.mark.parametrize(
    ("index", "kernel", "head", "std", "log_prob"),
    [
        (0, "flow_sde", (-0.039871, 0.600321, 0.664977), 3.5056713, -0.601115),
        (0, "cps", (-0.039871, 0.248221, 0.284497), 0.9131373, -0.228098),
        (0, "dance_sde", (-1.000000, -0.036112, 0.368995), 0.0599029, 0.951846),
        (3, "flow_sde", (-0.083818, 0.670381, 0.758617), 1.7185003, -0.156276),
        (3, "cps", (-0.145043, 0.254631, 0.334335), 0.7516849, -0.176723),
        (3, "dance_sde", (-0.857692, 0.088775, 0.445884), 0.0778406, 0.940283),
        (8, "flow_sde", (-0.335055, 0.470583, 0.645222), 0.4344148, -0.155940),
        (8, "cps", (-0.273574, 0.596195, 0.755875), 0.0084916, -0.045538),
        (8, "dance_sde", (-0.278049, 0.597460, 0.759067), 0.1556304, -0.222961),
    ],
)
def test_golden_values(index: int, kernel: str, head: tuple[float, ...], std: float, log_prob: float) -> None:
    x, v, x_next = golden_tensors()
    out = run(kernel, x, v, index, next_sample=x_next)
    # The peers return g without sqrt(-dt) for flow_sde; dance's row has the predicted clean latents.
    theirs = out.std / (SD3[index] - SD3[index + 1]) ** 0.5 if kernel == "flow_sde" else out.std
    first = predicted_clean(x, v, SD3[index]) if kernel == "dance_sde" else out.mean
    assert first.flatten()[:3].tolist() == pytest.approx(head, abs=1e-6)
    assert theirs.item() == pytest.approx(std, abs=5e-7)
    assert out.log_prob is not None
    assert out.log_prob.item() == pytest.approx(log_prob, abs=2e-6)
    assert torch.equal(out.next_sample, x_next)


@settings(max_examples=60)
@given(KERNELS, INDEXES, st.integers(1, 5), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_replay_of_a_sampled_transition_is_exact(kernel: str, index: int, num: int, dtype: torch.dtype) -> None:
    x, v = tensors(num, seed=index, dtype=dtype)
    drawn = run(kernel, x, v, index, rng=seeded(1))
    again = run(kernel, x, v, index, next_sample=drawn.next_sample)
    for one, other in zip(drawn, again, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@settings(max_examples=60)
@given(KERNELS, st.lists(INDEXES, min_size=1, max_size=6), st.booleans())
def test_one_call_may_mix_timesteps(kernel: str, indexes: list[int], as_tensor: bool) -> None:
    """Timestep parallelism relies on it: a batch of pairs of any timesteps equals one call a pair."""
    x, v = tensors(len(indexes), seed=len(indexes))
    x_next = x + 0.1 * v
    together = run(kernel, x, v, torch.tensor(indexes) if as_tensor else indexes, next_sample=x_next)
    for at, index in enumerate(indexes):
        row = slice(at, at + 1)
        alone = run(kernel, x[row], v[row], index, next_sample=x_next[row])
        assert torch.equal(together.mean[row], alone.mean)
        assert torch.equal(together.std[row], alone.std)
        assert together.log_prob is not None
        assert alone.log_prob is not None
        assert torch.equal(together.log_prob[row], alone.log_prob)


def test_shapes_and_dtypes() -> None:
    for dtype, computed in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64,) * 2,
    ):
        out = run("flow_sde", *tensors(2, dtype=dtype), 3, rng=seeded(0))
        assert out.log_prob is not None
        assert [t.dtype for t in (out.next_sample, out.log_prob, out.mean, out.std)] == [computed] * 4
        assert out.next_sample.shape == out.mean.shape == (2, 3, 4, 5)
        assert out.std.shape == (2, 1, 1, 1)
        assert out.log_prob.shape == (2,)


def test_low_precision_is_cast_before_the_maths() -> None:
    x, v = tensors(2, dtype=torch.bfloat16)
    low, high = (run("flow_sde", a, b, 3, next_sample=a) for a, b in ((x, v), (x.float(), v.float())))
    assert torch.equal(low.mean, high.mean)


@pytest.mark.parametrize("kernel", sorted(LEVELS))
def test_float64_gradient_agrees_with_finite_differences(kernel: str) -> None:
    x, v = tensors(3, dtype=torch.float64)
    x_next = run(kernel, x, v, [0, 3, 8], rng=seeded(2)).next_sample

    def log_prob(velocity: Tensor) -> Tensor:
        out = run(kernel, x, velocity, [0, 3, 8], next_sample=x_next).log_prob
        assert out is not None
        return out

    assert torch.autograd.gradcheck(log_prob, (v.requires_grad_(),))


@pytest.mark.parametrize("kernel", sorted(LEVELS))
def test_the_next_sample_is_detached_in_the_log_prob(kernel: str) -> None:
    """With x' = mean + noise attached, the mean would cancel out of the log-prob, and the gradient too."""
    x, v = tensors(2, dtype=torch.float64)
    v.requires_grad_()
    drawn = run(kernel, x, v, 3, rng=seeded(0))
    given_ = run(kernel, x, v, 3, next_sample=drawn.next_sample.detach())
    assert drawn.log_prob is not None
    assert given_.log_prob is not None
    (one,) = torch.autograd.grad(drawn.log_prob.sum(), v)
    (other,) = torch.autograd.grad(given_.log_prob.sum(), v)
    assert one.abs().max() > 0
    assert torch.equal(one, other)


@pytest.mark.parametrize("kernel", ["flow_sde", "dance_sde"])
def test_the_log_prob_is_the_gaussians_mean_over_dimensions(kernel: str) -> None:
    x, v = tensors(2, dtype=torch.float64)
    out = run(kernel, x, v, [2, 5], rng=seeded(0))
    density = Normal(out.mean, out.std).log_prob(out.next_sample)  # type: ignore[no-untyped-call]
    assert out.log_prob is not None
    torch.testing.assert_close(out.log_prob, density.flatten(1).mean(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", sorted(LEVELS))
def test_noise_has_the_sd_that_is_reported(kernel: str) -> None:
    x = torch.zeros(4, 50_000)
    out = run(kernel, x, x, 4, rng=seeded(0))
    noise = (out.next_sample - out.mean) / out.std
    assert noise.std().item() == pytest.approx(1.0, abs=0.01)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.01)


def test_noise_is_the_float32_draw_of_the_rng() -> None:
    x, v = tensors(3, dtype=torch.float64)
    out = run("flow_sde", x, v, 4, rng=seeded(9))
    assert torch.equal(out.next_sample, out.mean + out.std * torch.randn(x.shape, generator=seeded(9)).double())


def test_one_rng_a_sample_frees_it_from_its_neighbours() -> None:
    x, v = tensors(3)
    together = run("cps", x, v, 4, rng=[seeded(seed) for seed in range(3)])
    alone = run("cps", x[2:], v[2:], 4, rng=[seeded(2)])
    assert torch.equal(together.next_sample[2:], alone.next_sample)


@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde", "ode"])
def test_level_zero_has_no_log_prob_and_draws_no_noise(kernel: str) -> None:
    x, v = tensors(2)
    rng = seeded(0)
    before = rng.get_state()
    for more in ({}, {"rng": rng}, {"next_sample": x}):
        out = run(kernel, x, v, 4, level=0.0, **more)
        assert out.log_prob is None
        assert torch.equal(out.std, torch.zeros(2, 1, 1, 1))
        assert torch.equal(out.next_sample, x if "next_sample" in more else out.mean)
    assert torch.equal(rng.get_state(), before)


@pytest.mark.parametrize("shift", [1.0, 3.0])
@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde", "ode"])
def test_level_zero_equals_diffusers_bit_for_bit(kernel: str, shift: float) -> None:
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    scheduler.set_timesteps(10)
    sigmas = sd3_double_shift(10, shift)
    x, _ = tensors(2)
    stock = x
    for index, timestep in enumerate(scheduler.timesteps):
        _, v = tensors(2, seed=index)
        stock = scheduler.step(v, timestep, stock, return_dict=False)[0]
        x = run(kernel, x, v, index, sigmas=sigmas, level=0.0).next_sample
        assert torch.equal(x, stock)


def test_sigmas_may_be_a_tensor() -> None:
    x, v = tensors(2)
    for sigmas in (torch.tensor(SD3), torch.tensor(SD3, dtype=torch.float64), list(SD3)):
        assert torch.equal(
            run("cps", x, v, 4, sigmas=sigmas, next_sample=x).mean, run("cps", x, v, 4, next_sample=x).mean
        )


@pytest.mark.parametrize("sigmas", [SD3, dance(16), flux(6, 0.6), (0.9996665, 0.98, 0.5, 0.0), (1.0, 0.0)])
@pytest.mark.parametrize("kernel", sorted(LEVELS))
def test_every_timestep_is_finite(kernel: str, sigmas: tuple[float, ...]) -> None:
    x, v = tensors(len(sigmas) - 1)
    out = run(kernel, x, v, range(len(sigmas) - 1), sigmas=sigmas, rng=seeded(0))
    for tensor in out:
        assert tensor is not None
        assert bool(tensor.isfinite().all())


def test_predicted_clean_takes_one_sigma_a_sample() -> None:
    x, v = tensors(2, dtype=torch.bfloat16)
    out = predicted_clean(x, v, torch.tensor([0.5, 0.25]))
    assert out.dtype == torch.float32
    assert torch.equal(out[1], x[1].float() - 0.25 * v[1].float())
    assert torch.equal(out[:1], predicted_clean(x[:1], v[:1], 0.5))


X, V = tensors(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "flow-sde"}, "did you mean 'flow_sde'"),
        ({"level": -0.1}, "level must be"),
        ({"level": float("nan")}, "level must be"),
        ({"kernel": "cps", "level": 1.2}, "at most 1"),
        ({"next_sample": None}, "needs next_sample .replay. or rng"),
        ({"rng": seeded(0)}, "not both"),
        ({"index": 10}, "index 10 is not one of the timesteps 0 .. 9"),
        ({"index": -1}, "index -1"),
        ({"index": [0, 10]}, "index 10"),
        ({"index": torch.tensor([0.0, 1.0])}, r"index 0\.0"),
        ({"index": [0]}, "1 indexes for 2 samples"),
        ({"velocity": V[:1]}, "shape of velocity"),
        ({"next_sample": X[0]}, "shape of next_sample"),
        ({"sample": X[0, 0, 0, 0], "velocity": V[0, 0, 0, 0]}, "not empty"),
        ({"sample": X[:0], "velocity": V[:0]}, "not empty"),
        ({"sigmas": (1.0, 0.5, 0.5, 0.0)}, "decrease strictly"),
        ({"sigmas": (0.0, 0.5, 1.0)}, "decrease strictly"),
        ({"sigmas": torch.tensor([SD3])}, "1-d"),
        ({"next_sample": None, "rng": [seeded(0)]}, "1 rngs for 2 samples"),
    ],
)
def test_calls_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "kernel": "flow_sde",
        "sample": X,
        "velocity": V,
        "sigmas": SD3,
        "index": 3,
        "level": 0.7,
        "next_sample": X,
    }
    with pytest.raises(ValueError, match=message):
        transition(**{**arguments, **change})
