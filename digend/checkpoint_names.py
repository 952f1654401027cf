"""Which folders of a run are its checkpoints: `step-000022` with a manifest in it. Torch-free.

Invariant: what has another name is nobody's checkpoint. A person's copy (`step-000022.keep`) is never read, counted or
deleted.
"""

import re
from pathlib import Path

MANIFEST = "manifest.json"
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
