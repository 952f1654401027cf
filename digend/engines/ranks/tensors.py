"""A tensor of which each rank has a part, seen as a whole.

Knows no torch.distributed, so that one rank loads none of it.
"""

import torch
from torch import Tensor


def own_part(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor: the very tensor in which its values lie."""
    local = getattr(tensor, "to_local", None)
    if local is None:
        return tensor
    with torch.no_grad():
        part: Tensor = local()
    return part


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank that has a part of it; each of them must ask."""
    full = getattr(tensor, "full_tensor", None)
    whole: Tensor = tensor if full is None else full()
    return whole


def is_cut(tensor: Tensor) -> bool:
    """Whether this rank has a part of it only."""
    return hasattr(tensor, "full_tensor")
