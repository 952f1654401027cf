"""One timestep of a flow-matching sampler: one function, to sample a trajectory and to replay it.

The kernels' arithmetic is in `coefficients.py`; here it meets tensors. Maths is done in promote(dtype,
float32), float64 stays float64: bfloat16 is cast first, because x' - mean has no digits left in it. The
log-prob is a mean over the dimensions of a sample: of the Gaussian's log-density for flow_sde and
dance_sde, of -(x' - mean)^2 without scale for cps, None at level 0.

Must not know: which timesteps are stochastic (`digend.rl.windows`), models, prompts.
"""

# Shapes: B samples; "..." the dimensions of one sample; T timesteps; [B, 1, ...] has as many as the sample.

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from digend.diffusion.coefficients import coefficients
from digend.rl.names import KERNELS, require_known
from digend.rl.sigmas import check_decreasing

_HALF_LOG_2PI: Final = 0.5 * math.log(2 * math.pi)


class Transition(NamedTuple):
    """x' [B, ...], its log-prob [B] or None, the mean [B, ...] and the total noise sd [B, 1, ...].

    All in the compute dtype, so latents are stored as they were scored. `std` is the sd of x' itself: the
    peers' `std_dev_t` of flow_sde is std / sqrt(-dt).
    """

    next_sample: Tensor
    log_prob: Tensor | None
    mean: Tensor
    std: Tensor


def transition(
    *,
    kernel: str,
    sample: Tensor,
    velocity: Tensor,
    sigmas: Sequence[float] | Tensor,
    index: int | Sequence[int] | Tensor,
    level: float,
    next_sample: Tensor | None = None,
    rng: torch.Generator | Sequence[torch.Generator] | None = None,
) -> Transition:
    """Go from sigmas[index] to sigmas[index + 1]: sample x' with `rng`, or replay the given `next_sample`.

    sample, velocity, next_sample: [B, ...]. sigmas: the whole list of T + 1, as floats or a 1-d tensor.
    index: an int in [0, T), or one per sample. level: the noise level, >= 0. rng: one CPU generator for the
    whole tensor, or one per sample, which makes a sample's noise independent of its neighbours; noise is
    drawn in float32 on the CPU, and none at level 0.

    Gradient reaches log_prob through the mean only: x' is detached in it. At level 0 x' is `sample + dt *
    velocity` in the order of diffusers' FlowMatchEulerDiscreteScheduler (bitwise in float32), log_prob is
    None, and neither next_sample nor rng is needed. Raises ValueError for an unknown kernel, both or
    neither of next_sample and rng, shapes that differ, an index out of range, a negative level (or one
    above 1 for cps), sigmas that do not fall, an rng that is not on the CPU.
    """
    require_known("kernel", kernel, KERNELS)
    if not (math.isfinite(level) and level >= 0):
        raise ValueError(f"level must be a finite number >= 0, got {level}")
    stochastic = level > 0 and kernel != "ode"
    _check_tensors(sample, velocity, next_sample)
    if next_sample is not None and rng is not None:
        raise ValueError("give next_sample (replay) or rng (sampling), not both")
    if stochastic and next_sample is None and rng is None:
        raise ValueError(f"kernel {kernel!r} at level {level} needs next_sample (replay) or rng (sampling)")

    dtype = torch.promote_types(torch.promote_types(sample.dtype, velocity.dtype), torch.float32)
    x, v = sample.to(dtype), velocity.to(dtype)
    values = _sigma_values(sigmas, dtype)
    indexes = _indexes(index, sample.shape[0], len(values) - 1)
    of_sample, of_velocity, stds = zip(*(coefficients(kernel, values, at, level) for at in indexes), strict=True)
    mean = _column(of_sample, x) * x + _column(of_velocity, x) * v
    std = _column(stds, x)
    if next_sample is not None:
        x_next = next_sample.to(dtype)
    elif stochastic and rng is not None:
        x_next = mean + std * _noise(x, rng)
    else:
        x_next = mean
    log_prob = _log_prob(kernel, x_next.detach(), mean, stds) if stochastic else None
    return Transition(x_next, log_prob, mean, std)


def predicted_clean(sample: Tensor, velocity: Tensor, sigma: float | Tensor) -> Tensor:
    """The clean latents x - sigma * v that a velocity implies, [B, ...], in promote(dtype, float32).

    sigma: a float, or a tensor of one per sample [B]. Raises ValueError when the shapes differ.
    """
    _check_tensors(sample, velocity, None)
    dtype = torch.promote_types(torch.promote_types(sample.dtype, velocity.dtype), torch.float32)
    if isinstance(sigma, Tensor):
        sigma = sigma.to(sample.device, dtype).reshape(-1, *[1] * (sample.ndim - 1))
    return sample.to(dtype) - sigma * velocity.to(dtype)


def _log_prob(kernel: str, x_next: Tensor, mean: Tensor, stds: Sequence[float]) -> Tensor:
    """[B], a mean over the dimensions of a sample, which is why clip ranges of 1e-4 are normal.

    A sample scored alone or in company gets the same value to 1e-6: torch may split the sum of a lone long
    sample over its threads (with one thread the two were bitwise equal).
    """
    error = (x_next - mean).square().reshape(mean.shape[0], -1).mean(1)
    if kernel == "cps":
        return -error
    log_norm = error.new_tensor([math.log(std) + _HALF_LOG_2PI for std in stds])
    return -error / error.new_tensor([2 * std * std for std in stds]) - log_norm


def _noise(like: Tensor, rng: torch.Generator | Sequence[torch.Generator]) -> Tensor:
    """Standard normal noise of the shape, device and dtype of `like`, drawn in float32 on the CPU."""
    rngs = [rng] if isinstance(rng, torch.Generator) else list(rng)
    if any(one.device.type != "cpu" for one in rngs):
        raise ValueError("rng must be a CPU torch.Generator: noise is drawn there so that it is the same everywhere")
    if isinstance(rng, torch.Generator):
        noise = torch.randn(like.shape, generator=rng, dtype=torch.float32)
    elif len(rngs) == like.shape[0]:
        noise = torch.stack([torch.randn(like.shape[1:], generator=one, dtype=torch.float32) for one in rngs])
    else:
        raise ValueError(f"{len(rngs)} rngs for {like.shape[0]} samples")
    return noise.to(like)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """[B, 1, ...]: one number per sample, ready to broadcast over `like`."""
    return like.new_tensor(values).reshape(-1, *[1] * (like.ndim - 1))


def _sigma_values(sigmas: Sequence[float] | Tensor, dtype: torch.dtype) -> tuple[float, ...]:
    """The sigmas as the compute dtype holds them, so that float32 takes the difference of float32 sigmas."""
    tensor = torch.as_tensor(sigmas, dtype=torch.float64, device="cpu").detach()
    if tensor.ndim != 1:
        raise ValueError(f"sigmas must be the whole list of T + 1, 1-d, got shape {tuple(tensor.shape)}")
    return check_decreasing(tensor.to(dtype).tolist())


def _indexes(index: int | Sequence[int] | Tensor, num_samples: int, num_timesteps: int) -> list[int]:
    listed = index.tolist() if isinstance(index, Tensor) else index
    indexes = [listed] * num_samples if isinstance(listed, int) else list(listed)
    if len(indexes) != num_samples:
        raise ValueError(f"{len(indexes)} indexes for {num_samples} samples")
    for at in indexes:
        if not isinstance(at, int) or not 0 <= at < num_timesteps:
            raise ValueError(f"index {at!r} is not one of the timesteps 0 .. {num_timesteps - 1}")
    return indexes


def _check_tensors(sample: Tensor, velocity: Tensor, next_sample: Tensor | None) -> None:
    if sample.ndim == 0 or sample.numel() == 0:
        raise ValueError(f"sample must be [B, ...] and not empty, got shape {tuple(sample.shape)}")
    for name, tensor in (("velocity", velocity), ("next_sample", next_sample)):
        if tensor is not None and tensor.shape != sample.shape:
            raise ValueError(f"shape of {name} {tuple(tensor.shape)} differs from that of sample {tuple(sample.shape)}")
