"""The spike guard: whether a gradient is so large beside those before it that its optimizer step is not made.

Owns the norms it compares with. Must not know tensors. A norm that was refused is remembered too: where gradients have
grown for good the median follows them. Invariant: equal norms in equal order give equal answers, across a checkpoint.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

REMEMBERED = 32
"""Gradient norms that the median is of."""
FEWEST = 8
"""With fewer there is no usual norm yet, and nothing is refused."""


class SpikeGuard:
    """`factor`: times the median; None: nothing is ever refused."""

    def __init__(self, factor: float | None) -> None:
        self._factor = factor
        self._norms: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def norms(self) -> tuple[float, ...]:
        """Oldest first."""
        return tuple(self._norms)

    def restore(self, norms: Iterable[float]) -> None:
        self._norms = deque(norms, maxlen=REMEMBERED)

    def objection(self, norm: float) -> str | None:
        """Why a step with a gradient of this norm must not be made; remembers the norm."""
        before = tuple(self._norms)
        if math.isfinite(norm):
            self._norms.append(norm)
        if self._factor is None or len(before) < FEWEST:
            return None
        usual = median(before)
        if not norm > self._factor * usual:
            return None
        return (
            f"gradient norm {norm:.4g} is more than {self._factor:g} times (training.spike_factor) the median "
            f"{usual:.4g} of the last {len(before)}"
        )
