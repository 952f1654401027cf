"""Wan in float64 throughout: diffusers keeps parts of it in float32, and computes them so, whatever its type.

Their rounding depends on what shares a pass, and Adam makes much of it where a gradient is near zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor


@contextmanager
def throughout_in(dtype: str) -> Iterator[None]:
    """Inside, nothing in float64 is rounded to float32 on its way, where `dtype` is float64."""
    if dtype != "float64":
        yield
        return
    plain = torch.Tensor.float

    def kept(tensor: Tensor) -> Tensor:
        return tensor if tensor.dtype == torch.float64 else plain(tensor)

    with patch.object(torch.Tensor, "float", kept), patch.object(WanTransformer3DModel, "_keep_in_fp32_modules", None):
        yield
