"""Named parts of a forward pass, told to the receipt of whatever task is running; outside of one they cost nothing.

Owns the way from a model, which knows no tasks, to the stage timers of one. Invariant: a part is measured between two
points at which the device has finished, so that kernels which were only enqueued are not counted as free.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch


class Timer(Protocol):
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


Stage = Callable[[str], Timer]

_stage: ContextVar[Stage | None] = ContextVar("stage", default=None)


@contextmanager
def told_to(stage: Stage | None) -> Iterator[None]:
    """Inside, parts are told to `stage`, such as `Context.stage`; None: to nobody."""
    token = _stage.set(stage)
    try:
        yield
    finally:
        _stage.reset(token)


@contextmanager
def part(name: str, device: torch.device) -> Iterator[None]:
    """`with part("unconditional", device):` around a forward pass."""
    stage = _stage.get()
    if stage is None:
        yield
        return
    _finish(device)
    with stage(name):
        yield
        _finish(device)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
