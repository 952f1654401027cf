"""The loss scale of float16: a power of two that keeps small gradients of activations above what float16 can hold.

Owns its value and when it changes: halved where a micro-batch's gradient overflows, which is then made again, doubled
after `GROWTH_INTERVAL` micro-batches that did not. Start, factors and interval are those of torch's GradScaler, but no
optimizer step is skipped for it. Other number types have the scale 1 and are not looked at. Must not know tasks.

Invariant: gradients that were accepted are unscaled. A power of two changes no digit of them, so the scale of a run
shows in nothing but in what would have been lost.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

FIRST = 2.0**16
LEAST, LARGEST = 1.0, 2.0**24
GROWTH_INTERVAL = 2000
"""Micro-batches in a row without an overflow."""


class LossScale:
    """`value` multiplies the loss. `clean`: micro-batches since it last changed."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._scales = dtype == torch.float16
        self.value = FIRST if self._scales else 1.0
        self.clean = 0

    def restore(self, value: float, clean: int) -> None:
        """Of a checkpoint; of one that has none, the first."""
        if self._scales and value:
            self.value, self.clean = value, clean

    @torch.no_grad()
    def accepts(self, parameters: Sequence[Parameter], add_up: Callable[[Tensor], Tensor]) -> bool:
        """Unscale a micro-batch's gradients; False where they overflowed, are dropped, and have to be made again.

        `add_up`: the sum over ranks, which all have to take the same way. At the least scale nothing is refused: what
        is not finite then is the model's fault, and the guard's to name.
        """
        if not self._scales:
            return True
        found = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in found if parameter.grad is not None]
        overflowed = torch.tensor([float(not all(_finite(each) for each in gradients))])
        if float(add_up(overflowed)) and self.value > LEAST:
            self.value, self.clean = self.value / 2, 0
            for parameter in found:
                parameter.grad = None
            return False
        for gradient in gradients:
            gradient.div_(self.value)
        self._grow()
        return True

    def _grow(self) -> None:
        self.clean += 1
        if self.clean >= GROWTH_INTERVAL:
            self.value, self.clean = min(2 * self.value, LARGEST), 0


def _finite(gradient: Tensor) -> bool:
    """Of one rank's part of it."""
    part: Tensor = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return bool(part.isfinite().all())
