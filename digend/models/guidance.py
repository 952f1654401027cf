"""Classifier-free guidance: what a family does with a conditional and an unconditional velocity.

Owns the formulas and when guidance is on; a family decides how its passes are run. Each is written in the operations
and the order of the stock pipelines, so that level 0 gives their bits.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from digend.models.timing import part

UNCONDITIONAL = "unconditional"
"""The stage under which the second pass is shown."""


def is_on(scale: float) -> bool:
    """As in the stock pipelines: a scale of 1 (or less) is none, and costs no second pass."""
    return scale > 1


def combined(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """unconditional + scale (conditional - unconditional)."""
    return unconditional + scale * (conditional - unconditional)


def rescaled(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Qwen-Image's: the combination at the norm of the conditional velocity, over the last dimension."""
    guided = combined(conditional, unconditional, scale)
    conditional_norm: Tensor = torch.norm(conditional, dim=-1, keepdim=True)
    guided_norm: Tensor = torch.norm(guided, dim=-1, keepdim=True)
    return guided * (conditional_norm / guided_norm)


def two_passes(
    conditional: Callable[[], Tensor],
    unconditional: Callable[[], Tensor],
    scale: float,
    device: torch.device,
    combine: Callable[[Tensor, Tensor, float], Tensor] = combined,
) -> Tensor:
    """Both passes one after the other, conditional first, combined."""
    velocity = conditional()
    with part(UNCONDITIONAL, device):
        other = unconditional()
    return combine(velocity, other, scale)
