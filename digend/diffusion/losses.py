"""Losses over (sample, timestep) pairs: one number a pair, never a mean.

The caller sums pairs and divides by the planned normaliser Z0 (a global step's number of pairs), so that
the gradient does not depend on how pairs were cut into passes or dealt over ranks. Sources: flow_grpo's
clipped objective and its KL penalty.
"""

# Shapes: N pairs; "..." the dimensions of one sample.

from typing import NamedTuple

import torch
from torch import Tensor


class ClippedObjective(NamedTuple):
    """Per pair, all [N]: the loss, with gradient, and three diagnostics without.

    `clipped`: the ratio left the clip range on either side, whatever the advantage; the peers' clip
    fraction is its mean.
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    log_ratio: Tensor


def clipped_objective(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip_range: float) -> ClippedObjective:
    """max(-A * ratio, -A * clip(ratio, 1 - clip_range, 1 + clip_range)) per pair.

    The importance ratio is exp(log_prob - old_log_prob). All tensors [N]; gradient flows through `log_prob`
    only. Computed in promote(dtype, float32). Log-probs are means over a sample's 1e4 .. 1e6 dimensions, so
    a clip range is 1e-5 .. 1e-3; at .2 nothing is ever clipped. The first update of a policy version has
    ratio 1. Raises ValueError for shapes that differ or a clip range outside (0, 1).
    """
    if not 0 < clip_range < 1:
        raise ValueError(f"clip_range must be in (0, 1), got {clip_range}")
    if not log_prob.shape == old_log_prob.shape == advantage.shape:
        shapes = tuple(log_prob.shape), tuple(old_log_prob.shape), tuple(advantage.shape)
        raise ValueError(f"log_prob, old_log_prob and advantage differ in shape: {shapes}")
    dtype = torch.promote_types(log_prob.dtype, torch.float32)
    log_ratio = log_prob.to(dtype) - old_log_prob.detach().to(dtype)
    ratio = log_ratio.exp()
    weight = -advantage.detach().to(dtype)
    loss = torch.maximum(weight * ratio, weight * ratio.clamp(1 - clip_range, 1 + clip_range))
    clipped = (ratio.detach() - 1).abs() > clip_range
    return ClippedObjective(loss, ratio.detach(), clipped, log_ratio.detach())


def kl_to_reference(mean: Tensor, mean_ref: Tensor, std: Tensor, dt: Tensor | float | None = None) -> Tensor:
    """The KL penalty of each pair [N]: (mean - mean_ref)^2 / (2 * g^2), averaged over a sample's dimensions.

    mean, mean_ref: [N, ...] of `transition`, with the policy and the reference weights at the same x;
    gradient flows through `mean`. std: [N, 1, ...] or [N], the *total* noise sd. With `dt` (sigmas[i + 1] -
    sigmas[i] < 0, a float or [N]) g is std / sqrt(-dt): flow_grpo's form, which has no dt in it, and whose
    beta of .04 is meant for it. Without, g is std: the true Gaussian KL averaged over dimensions (flow_grpo
    for Wan and for cps, whose std has no dt either). Raises ValueError for shapes that differ, a dt that is
    not negative, and std 0 (level 0: no density, so no KL).
    """
    if mean.shape != mean_ref.shape:
        raise ValueError(f"mean {tuple(mean.shape)} and mean_ref {tuple(mean_ref.shape)} differ in shape")
    dtype = torch.promote_types(mean.dtype, torch.float32)
    num = mean.shape[0]
    variance = _per_pair(std, num, mean, dtype).square()
    if not bool((variance > 0).all()):
        raise ValueError("std is 0: a timestep at level 0 has no density, so no KL; leave it out")
    if dt is not None:
        width = -_per_pair(torch.as_tensor(dt), num, mean, dtype)
        if not bool((width > 0).all()):
            raise ValueError(f"dt must be sigmas[i + 1] - sigmas[i] < 0, got {dt}")
        variance = variance / width
    error = (mean.to(dtype) - mean_ref.detach().to(dtype)).square().reshape(num, -1).mean(1)
    return error / (2 * variance)


def _per_pair(values: Tensor, num: int, like: Tensor, dtype: torch.dtype) -> Tensor:
    """[N] (or [1]) from [N, 1, ...], [N] or a scalar."""
    flat = values.detach().to(like.device, dtype).reshape(-1)
    if flat.numel() not in (1, num):
        raise ValueError(f"std and dt hold one number per pair ({num}), got shape {tuple(values.shape)}")
    return flat
