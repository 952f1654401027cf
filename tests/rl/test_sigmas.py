"""Schedules against diffusers, bit for bit, and against the peers' printed values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digend.rl import sigmas as schedules

SHIFTS = (1.0, 1.57, 2, 3.0, 4.7, 5, 7.0, 12.0)
COUNTS = (1, 2, 3, 4, 6, 8, 10, 16, 20, 25, 28, 50)
MUS = (0.0, 0.5, 0.6, 0.83, 1.15, 2.0)


def stock(
    num: int, *, sigmas: Sequence[float] | None = None, mu: float | None = None, **config: Any
) -> tuple[float, ...]:
    """The float32 sigmas of diffusers' scheduler."""
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(**config)
    scheduler.set_timesteps(num, sigmas=sigmas, mu=mu)
    return tuple(scheduler.sigmas.tolist())


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("num", COUNTS)
def test_shifted_schedules_equal_diffusers_bit_for_bit(num: int, shift: float) -> None:
    ramp, to_zero = np.linspace(1.0, 1 / num, num).tolist(), np.linspace(1.0, 0.0, num + 1)[:-1].tolist()
    assert schedules.sd3_double_shift(num, shift) == stock(num, shift=shift)
    assert schedules.sd3_single_shift(num, shift) == stock(num, sigmas=ramp, shift=shift)
    assert schedules.dance(num, shift) == stock(num, sigmas=to_zero, shift=shift)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("num", COUNTS)
def test_flux_equals_diffusers_bit_for_bit(num: int, mu: float) -> None:
    ramp = np.linspace(1.0, 1 / num, num).tolist()
    assert schedules.flux(num, mu) == stock(num, sigmas=ramp, mu=mu, use_dynamic_shifting=True)


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("num", COUNTS[1:])
def test_qwen_equals_diffusers_bit_for_bit(num: int, mu: float) -> None:
    ramp = np.linspace(1.0, 1 / num, num).tolist()
    expected = stock(num, sigmas=ramp, mu=mu, use_dynamic_shifting=True, shift_terminal=0.02)
    assert schedules.flux(num, mu, 0.02) == expected


@pytest.mark.parametrize("seq_len", [16, 256, 1024, 4096])
def test_mu_is_linear_in_the_packed_length(seq_len: int) -> None:
    assert schedules.mu_for(seq_len) == pytest.approx(0.5 + 0.65 * (seq_len - 256) / 3840, abs=1e-15)


def test_flow_grpo_sd3_grid() -> None:
    printed = [
        1,
        0.9601293,
        0.9133490,
        0.8576923,
        0.7903683,
        0.7072785,
        0.6021506,
        0.4648760,
        0.2780488,
        0.0089286,
        0,
    ]
    assert schedules.sd3_double_shift(10) == pytest.approx(printed, abs=6e-8)


def test_single_shift_grid() -> None:
    printed = [1, 0.9643, 0.9231, 0.875, 0.8182, 0.75, 0.6667, 0.5625, 0.4286, 0.25, 0]
    assert schedules.sd3_single_shift(10) == pytest.approx(printed, abs=6e-5)


def test_dance_grid_and_its_torch_original() -> None:
    torch = pytest.importorskip("torch")
    assert schedules.dance(16)[:4] == pytest.approx([1, 0.97826, 0.95455, 0.92857], abs=6e-6)
    for num in (16, 20, 25):
        ramp = torch.linspace(1, 0, num + 1)
        original = (5.0 * ramp / (1 + 4.0 * ramp)).tolist()
        assert schedules.dance(num, 5.0) == pytest.approx(original, abs=6e-8)  # one float32 rounding below 1


def test_linear_is_equal_timesteps() -> None:
    assert schedules.linear(4) == (1.0, 0.75, 0.5, 0.25, 0.0)


@given(st.integers(1, 60), st.floats(1.0, 12.0))
def test_every_schedule_is_valid_and_float32(num: int, shift: float) -> None:
    for made in (
        schedules.sd3_double_shift(num, shift),
        schedules.sd3_single_shift(num, shift),
        schedules.dance(num, shift),
        schedules.flux(num, shift / 6),
    ):
        assert len(made) == num + 1
        assert schedules.check(made) == made
        assert made == tuple(map(schedules.float32, made))


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_float32_is_the_rounding_of_numpy(one: float, other: float) -> None:
    a, b = schedules.float32(one), schedules.float32(other)
    assert a == float(np.float32(one))
    assert schedules.float32(a + b) == float(np.float32(a) + np.float32(b))


def test_explicit_lists_are_rounded_to_float32() -> None:
    assert schedules.explicit([0.9, 0.3, 0]) == (float(np.float32(0.9)), float(np.float32(0.3)), 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0], "at least one timestep"),
        ([1.0, 0.5, 0.5, 0.0], "0.5 then 0.5 at timestep 1"),
        ([1.0, 0.5], "last sigma must be 0"),
        ([1.1, 0.5, 0.0], "in .0, 1."),
        ([1.0, float("nan"), 0.0], "in .0, 1."),
        ([1.0, 0.5, -0.1], "in .0, 1."),
        ([0.5, 0.1 + 1e-12, 0.1, 0.0], "strictly"),
    ],
)
def test_lists_that_are_no_schedule_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.explicit(values)


def test_bad_knobs_are_named() -> None:
    with pytest.raises(ValueError, match="num must be"):
        schedules.dance(0)
    with pytest.raises(ValueError, match="shift must be"):
        schedules.sd3_double_shift(10, -1.0)
    with pytest.raises(ValueError, match="mu must be"):
        schedules.flux(10, float("inf"))
    with pytest.raises(ValueError, match="shift_terminal"):
        schedules.flux(10, 1.0, 1.0)
    with pytest.raises(ValueError, match="shift_terminal needs at least 2"):
        schedules.flux(1, 1.0, 0.02)
    with pytest.raises(ValueError, match="differ"):
        schedules.mu_for(10, 5, 5)


def test_schedules_have_names() -> None:
    assert schedules.schedule("flux") is schedules.flux
    with pytest.raises(ValueError, match="did you mean 'sd3_double_shift'"):
        schedules.schedule("sd3_doubleshift")
