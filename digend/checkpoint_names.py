"""Which folders of a run are its checkpoints, `step-000022` with a manifest in it, and which files in it hold tensors.
Torch-free.

Tensors of one kind are in one file, `weights.safetensors`, or in slices over several,
`weights-00001-of-00004.safetensors`.
Invariant: what has another name is nobody's checkpoint. A person's copy (`step-000022.keep`) is never read, counted or
deleted.
"""

import re
from collections.abc import Collection
from pathlib import Path

MANIFEST = "manifest.json"
WEIGHTS, OPTIMIZER, AVERAGES, MASTERS = "weights", "optimizer", "averages", "masters"
"""Kinds of tensors."""
_NAME = re.compile(r"step-(\d{6,})")


def checkpoint_name(global_step: int) -> str:
    return f"step-{global_step:06d}"


class NoCheckpoint(LookupError):
    """The message says which there are."""


def checkpoint_of(run: Path, global_step: int | None) -> Path:
    """The checkpoint of a global step of a run folder; the newest for None. Raises NoCheckpoint."""
    found = checkpoints_in(run / "checkpoints")
    if not found:
        raise NoCheckpoint(f"{run} has no checkpoint yet")
    step = max(found) if global_step is None else global_step
    if step not in found:
        nearest = min(found, key=lambda each: abs(each - step))
        there = ", ".join(map(str, found))
        raise NoCheckpoint(f"no checkpoint of global step {step} in {run}: there are {there}; the nearest is {nearest}")
    return found[step]


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """By global step, in order; nothing where there is no such folder."""
    found = ((_NAME.fullmatch(path.parent.name), path.parent) for path in folder.glob(f"step-*/{MANIFEST}"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def tensor_file(kind: str, number: int, count: int) -> str:
    """Of `count` files the one with this number, from 1."""
    return f"{kind}.safetensors" if count == 1 else f"{kind}-{number:05d}-of-{count:05d}.safetensors"


def tensor_files(kind: str, names: Collection[str]) -> list[str]:
    """All files of a kind, where one of them is among `names`; else nothing."""
    sliced = re.compile(rf"{kind}-\d{{5}}-of-(\d{{5}})\.safetensors")
    counts = (
        [1] if tensor_file(kind, 1, 1) in names else [int(found[1]) for found in map(sliced.fullmatch, names) if found]
    )
    return [tensor_file(kind, number, counts[0]) for number in range(1, counts[0] + 1)] if counts else []
