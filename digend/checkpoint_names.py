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


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """By global step, in order; nothing where there is no such folder."""
    found = ((_NAME.fullmatch(path.parent.name), path.parent) for path in folder.glob(f"step-*/{MANIFEST}"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))
