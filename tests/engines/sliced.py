"""A small checkpoint in files of one kind each, or in slices over several, without a model or ranks."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from digend.checkpoint_names import AVERAGES, OPTIMIZER, WEIGHTS
from digend.engines.checkpoints import CheckpointState, Entry, begin, finish, write_tensors
from digend.engines.stored import Part

STATE = CheckpointState(job="job-1", version=2, global_step=2, base_digest="base", final=False)
SHAPES = {"a": (7, 3), "b": (2, 2, 2), "c": (5,), "single": (1, 4)}


def tensors(seed: int) -> dict[str, Tensor]:
    """Of several shapes and types, one of them a scalar."""
    rng = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(shape, generator=rng) for name, shape in SHAPES.items()}
    return {**found, "half": torch.randn(6, 2, generator=rng).to(torch.bfloat16), "step": torch.tensor(3.0)}


def parts_of(whole: Mapping[str, Tensor], count: int) -> list[Part]:
    """As FSDP cuts: equal numbers of rows, the last ones smaller or empty; scalars are in the first."""
    parts = []
    for number in range(count):
        own: dict[str, Tensor] = {}
        rows: dict[str, tuple[int, int]] = {}
        for name, tensor in whole.items():
            if tensor.ndim == 0:
                own |= {name: tensor} if number == 0 else {}
                continue
            total = len(tensor)
            size = -(-total // count)
            first = min(number * size, total)
            own[name], rows[name] = tensor[first : first + size].clone(), (first, total)
        parts.append(Part(own, rows))
    return parts


def write(folder: Path, count: int) -> str:
    """Weights, optimizer and averages; returns the manifest's digest."""
    hidden, entries = begin(folder), dict[str, Entry]()
    for seed, kind in enumerate((WEIGHTS, OPTIMIZER, AVERAGES)):
        whole = tensors(seed)
        for number, part in enumerate(parts_of(whole, count) if count > 1 else [Part(whole)], start=1):
            entries |= write_tensors(hidden, kind, part, number, count)
    return finish(hidden, folder, STATE, entries, keep=3)
