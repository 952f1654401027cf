"""Floating-point operations of a job's passes, counted once for each shape on one sample.

Owns the counts. Knows no tasks. The count is made on a pass of one row of its own, whose result is thrown away: torch's
FlopCounterMode takes other paths through a linear layer than a plain pass does, so that it must not watch passes that
count. It sees matrix products, convolutions and attention; a kernel of somebody else's counts as nothing. Every row of
that shape is taken to cost the same. Invariants: counting changes no number that is computed, random draws included;
where a count fails it is 0, which is "not known", and the job goes on.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from digend.models.spec import Condition
from digend.models.timing import told_to
from digend.telemetry.logs import logger


class FlopMeter:
    """Grows by the operations of each pass; `take` empties it. `parameters`: whose gradients a pass may touch."""

    def __init__(self, device: torch.device, parameters: Iterable[torch.nn.Parameter] = ()) -> None:
        self._devices = [device] if device.type == "cuda" else []
        self._parameters = list(parameters)
        self._known: dict[Hashable, float] = {}
        self._total = 0.0

    def add(
        self,
        shape: Hashable,
        rows: int,
        once: Callable[[], object],
        recomputed: Callable[[], object] | None = None,
    ) -> None:
        """Charge `rows` rows of a shape, which names all that a row's cost depends on; `once` runs one of them.

        `recomputed` runs what gradient checkpointing does a second time in it: no work of the model, so not counted.
        """
        if shape not in self._known:
            self._known[shape] = self._count(once) - (self._count(recomputed) if recomputed else 0.0)
        self._total += rows * self._known[shape]

    def take(self) -> float:
        """Operations since the last `take`."""
        total, self._total = self._total, 0.0
        return total

    def _count(self, work: Callable[[], object]) -> float:
        try:
            with self._untouched(), told_to(None), FlopCounterMode(display=False) as counter:
                work()
        except Exception as error:
            logger().warning("floating-point operations are not known", reason=str(error).splitlines()[:1])
            return 0.0
        return float(counter.get_total_flops())

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        """Gradients and random states are afterwards what they were."""
        gradients = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        try:
            with torch.random.fork_rng(devices=self._devices):
                yield
        finally:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient


def shape_of(latents: Tensor, condition: Condition) -> Hashable:
    """Of one sample, latents [*L]: what the cost of its forward pass depends on."""
    return tuple(latents.shape), tuple(sorted((name, tuple(tensor.shape)) for name, tensor in condition.items()))
