import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from digend.diffusion import clipped_objective, kl_to_reference, transition
from digend.rl.sigmas import sd3_double_shift

torch.set_num_threads(1)

ADVANTAGE = (1.0, -1.0, 2.0, -0.5)
LOG_RATIO = (3e-4, 3e-4, -2e-4, 5e-5)
FLOATS = st.floats(-2, 2)


@pytest.mark.parametrize(
    ("clip_range", "loss", "clip_fraction"),
    [(1e-4, -0.37484378, 0.75), (1e-5, -0.37482125, 1.0), (0.2, -0.37489378, 0.0)],
)
def test_golden_values(clip_range: float, loss: float, clip_fraction: float) -> None:
    log_prob, advantage = torch.tensor([LOG_RATIO, ADVANTAGE], dtype=torch.float64)
    out = clipped_objective(log_prob, torch.zeros_like(log_prob), advantage, clip_range)
    # The golden values were printed from float32, whose ratios are rounded to 6e-8.
    assert out.loss.mean().item() == pytest.approx(loss, abs=4e-8)
    assert out.clipped.double().mean().item() == clip_fraction
    assert out.log_ratio.tolist() == pytest.approx(LOG_RATIO)
    single = clipped_objective(log_prob.float(), torch.zeros(4), advantage.float(), clip_range)
    assert single.loss.mean().item() == pytest.approx(loss, abs=1e-7)


def test_float64_values_are_exact() -> None:
    log_prob, advantage = torch.tensor([LOG_RATIO, ADVANTAGE], dtype=torch.float64)
    out = clipped_objective(log_prob, torch.zeros_like(log_prob), advantage, 1e-4)
    by_hand = (-1.0001, math.exp(3e-4), -2 * math.exp(-2e-4), 0.5 * math.exp(5e-5))
    assert out.loss.tolist() == pytest.approx(by_hand, abs=1e-15)


@given(FLOATS, FLOATS, st.floats(-5, 5), st.floats(1e-6, 0.5))
def test_clipping_only_ever_raises_the_loss(new: float, old: float, advantage: float, clip_range: float) -> None:
    of = [torch.tensor([value], dtype=torch.float64) for value in (new, old, advantage)]
    out = clipped_objective(of[0], of[1], of[2], clip_range)
    assert out.loss.item() >= -advantage * out.ratio.item()


def test_unchanged_weights_give_ratio_one_and_the_policy_gradient() -> None:
    log_prob = torch.tensor([-0.6, -0.2], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([1.5, -0.5], dtype=torch.float64)
    out = clipped_objective(log_prob, log_prob.detach(), advantage, 1e-4)
    assert out.ratio.tolist() == [1.0, 1.0]
    assert not out.clipped.any()
    (gradient,) = torch.autograd.grad(out.loss.sum(), log_prob)
    assert torch.equal(gradient, -advantage)


def test_gradient_stops_where_the_clip_binds() -> None:
    log_prob = torch.tensor([0.01, 0.01, -0.01, -0.01], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    old = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    out = clipped_objective(log_prob, old, advantage, 1e-3)
    torch.autograd.backward(out.loss.sum())
    assert log_prob.grad is not None
    assert (log_prob.grad != 0).tolist() == [False, True, True, False]
    assert advantage.grad is None
    assert old.grad is None
    assert not any(diagnostic.requires_grad for diagnostic in out[1:])


def test_zero_advantage_is_zero_loss() -> None:
    out = clipped_objective(torch.tensor([0.3]), torch.tensor([0.0]), torch.tensor([0.0]), 1e-4)
    assert out.loss.item() == 0.0


def test_low_precision_log_probs_are_computed_in_float32() -> None:
    out = clipped_objective(torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2), torch.ones(2), 1e-4)
    assert out.loss.dtype == torch.float32


@pytest.mark.parametrize("clip_range", [0.0, -0.1, 1.0, float("nan")])
def test_a_clip_range_outside_0_1_is_refused(clip_range: float) -> None:
    with pytest.raises(ValueError, match="clip_range"):
        clipped_objective(torch.zeros(1), torch.zeros(1), torch.zeros(1), clip_range)


def test_objective_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        clipped_objective(torch.zeros(2), torch.zeros(2), torch.zeros(1), 1e-4)


def test_kl_is_flow_grpos_form_without_dt() -> None:
    sigmas = sd3_double_shift(10)
    index, level = [1, 4], 0.7
    x, v, v_ref = torch.randn(3, 2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    policy, reference = (
        transition(kernel="flow_sde", sample=x, velocity=w, sigmas=sigmas, index=index, level=level, next_sample=x)
        for w in (v, v_ref)
    )
    dt = torch.tensor([sigmas[i + 1] - sigmas[i] for i in index], dtype=torch.float64)
    g = torch.tensor([level * (sigmas[i] / (1 - sigmas[i])) ** 0.5 for i in index], dtype=torch.float64)
    error = (policy.mean - reference.mean).square().flatten(1).mean(1)
    torch.testing.assert_close(
        kl_to_reference(policy.mean, reference.mean, policy.std, dt), error / (2 * g**2), rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        kl_to_reference(policy.mean, reference.mean, policy.std.flatten()),
        torch.distributions.kl_divergence(
            torch.distributions.Normal(policy.mean, policy.std),
            torch.distributions.Normal(reference.mean, policy.std),
        )
        .flatten(1)
        .mean(1),
        rtol=1e-12,
        atol=0,
    )


def test_kl_gradient_flows_through_the_policy_mean_only() -> None:
    mean, mean_ref = torch.ones(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    torch.autograd.backward(kl_to_reference(mean, mean_ref, torch.ones(2, 1), -0.5).sum())
    assert mean.grad is not None
    assert torch.allclose(mean.grad, torch.full((2, 3), 0.5 / 3))
    assert mean_ref.grad is None


def test_kl_refuses_a_timestep_without_noise() -> None:
    with pytest.raises(ValueError, match="level 0"):
        kl_to_reference(torch.ones(2, 3), torch.ones(2, 3), torch.tensor([1.0, 0.0]))


def test_kl_refuses_what_does_not_fit() -> None:
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match="dt must be"):
        kl_to_reference(ones, ones, torch.ones(2), 0.1)
    with pytest.raises(ValueError, match="differ in shape"):
        kl_to_reference(ones, ones[:1], torch.ones(2))
    with pytest.raises(ValueError, match=r"one number per pair \(2\)"):
        kl_to_reference(ones, ones, torch.ones(3))
