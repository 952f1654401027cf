"""A tensor of which each rank has a part, seen as a whole.

Knows no torch.distributed, so that one rank loads none of it.
"""

from torch import Tensor


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank that has a part of it; each of them must ask."""
    full = getattr(tensor, "full_tensor", None)
    whole: Tensor = tensor if full is None else full()
    return whole
