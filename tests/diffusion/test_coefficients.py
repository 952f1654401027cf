"""The kernels' three numbers against the papers' formulas, written out the long way."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.diffusion.coefficients import coefficients
from digend.rl.sigmas import sd3_double_shift

SD3 = sd3_double_shift(10)
INDEXES = st.integers(0, 9)
POINTS = st.floats(-3, 3)


@given(INDEXES, st.floats(0.05, 1.5), POINTS, POINTS)
def test_flow_sde(index: int, level: float, x: float, v: float) -> None:
    s, dt = SD3[index], SD3[index + 1] - SD3[index]
    g = level * math.sqrt(s / (1 - (SD3[1] if index == 0 else s)))
    mean = x * (1 + g**2 * dt / (2 * s)) + v * (1 + g**2 * (1 - s) / (2 * s)) * dt
    of_sample, of_velocity, std = coefficients("flow_sde", SD3, index, level)
    assert of_sample * x + of_velocity * v == pytest.approx(mean, abs=1e-9)
    assert std == pytest.approx(g * math.sqrt(-dt))


@given(INDEXES, st.floats(0.05, 1.0), POINTS, POINTS)
def test_cps(index: int, level: float, x: float, v: float) -> None:
    s, s_next = SD3[index], SD3[index + 1]
    clean, noise, g = x - s * v, x + (1 - s) * v, s_next * math.sin(level * math.pi / 2)
    mean = (1 - s_next) * clean + math.sqrt(s_next**2 - g**2) * noise if level < 1 else (1 - s_next) * clean
    of_sample, of_velocity, std = coefficients("cps", SD3, index, level)
    assert of_sample * x + of_velocity * v == pytest.approx(mean, abs=1e-7)
    assert std == pytest.approx(g)


@given(INDEXES, st.floats(0.05, 1.0), POINTS, POINTS)
def test_dance_sde(index: int, level: float, x: float, v: float) -> None:
    s, dt = SD3[index], SD3[index + 1] - SD3[index]
    score = -(x - (1 - s) * (x - s * v)) / s**2
    mean = x + dt * v - level**2 * score * dt / 2
    of_sample, of_velocity, std = coefficients("dance_sde", SD3, index, level)
    assert of_sample * x + of_velocity * v == pytest.approx(mean, abs=1e-7)
    assert std == pytest.approx(level * math.sqrt(-dt))


@given(st.integers(0, 8), st.floats(0.05, 1.0))
def test_cps_keeps_the_noise_it_should_have(index: int, level: float) -> None:
    """x' of a clean image that is all zeros is pure noise of sd s': kept and new noise together."""
    s, s_next = SD3[index], SD3[index + 1]
    of_sample, of_velocity, std = coefficients("cps", SD3, index, level)
    kept = of_sample * s + of_velocity  # x = s * noise, v = noise
    assert math.hypot(kept, std) == pytest.approx(s_next)


@pytest.mark.parametrize("first", [1.0, 0.999999, 0.9996665])
def test_a_first_sigma_close_to_one_is_as_good_as_one(first: float) -> None:
    """UniPC's flow sigmas start just below 1 (shift 3, 20 timesteps); an equality test explodes there."""
    sigmas = (first, *sd3_double_shift(20)[1:])
    of_sample, _, std = coefficients("flow_sde", sigmas, 0, 0.7)
    reference = coefficients("flow_sde", (1.0, *sigmas[1:]), 0, 0.7)
    assert of_sample == pytest.approx(reference.of_sample, abs=5e-3)  # -11.7 and -4163 with an equality test
    assert std == pytest.approx(reference.std, rel=2e-2)
    assert std == pytest.approx(0.7, abs=0.02)  # 5.0 and 91


@pytest.mark.parametrize("first", [0.9999989867210388, 0.9996665])
def test_golden_values_of_a_unipc_list(first: float) -> None:
    """Shift 3, 20 timesteps, a = .7, as two releases of diffusers begin it: g 5.33, sd .70, of x .755."""
    of_sample, _, std = coefficients("flow_sde", (first, 0.9827764630317688, 0.9643239974975586, 0.0), 0, 0.7)
    assert std / math.sqrt(first - 0.9827764630317688) == pytest.approx(5.33, abs=5e-3)
    assert std == pytest.approx(0.70, abs=1e-2)
    assert of_sample == pytest.approx(0.755, abs=5e-3)


def test_closeness_to_one_acts_on_the_first_timestep_only() -> None:
    sigmas = (1.0, 0.9999, 0.9995, 0.5, 0.0)
    s, dt = sigmas[2], sigmas[3] - sigmas[2]
    assert coefficients("flow_sde", sigmas, 2, 0.7).std == pytest.approx(0.7 * math.sqrt(s / (1 - s) * -dt))


@pytest.mark.parametrize("kernel", ["flow_sde", "cps", "dance_sde", "ode"])
def test_level_zero_is_the_ode(kernel: str) -> None:
    assert coefficients(kernel, SD3, 4, 0.0) == (1.0, SD3[5] - SD3[4], 0.0)


def test_small_levels_tend_to_the_ode() -> None:
    for kernel in ("flow_sde", "cps", "dance_sde"):
        assert coefficients(kernel, SD3, 4, 1e-5) == pytest.approx((1.0, SD3[5] - SD3[4], 0.0), abs=2e-5)


def test_cps_turns_at_most_a_quarter() -> None:
    with pytest.raises(ValueError, match=r"'cps' must be at most 1 .*got 1\.1"):
        coefficients("cps", SD3, 4, 1.1)
