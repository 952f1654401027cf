"""Checkpoints on disk: `runs/JOB/checkpoints/step-000022`, complete or not there at all.

A checkpoint is a folder: `weights.safetensors` (the trainable parameters by their published names),
`optimizer.safetensors`, `averages.safetensors` (`{average}/{parameter}`, where the job keeps averages),
`masters.safetensors` (all of them in float32, where the model is stored in half precision), `state.json` (counters and
what it belongs to), in the last one also `pipeline/` (diffusers' layout, loads with the stock library)
and, for an adapter, `lora/`; and `manifest.json` with size and digest of every other file. Random state needs no
keeping: every draw is keyed (digend.rl.seeds).

Invariants: it is written into a hidden folder, synced, and renamed; a folder with another name or without a manifest is
no checkpoint. Whatever is read back is checked against the manifest first, and nothing is unpickled.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from digend.checkpoint_names import MANIFEST, checkpoint_name, checkpoints_in
from digend.engines.digests import file_digest
from digend.engines.protocols import TaskFault

WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
AVERAGES, MASTERS = "averages.safetensors", "masters.safetensors"
_OPTIONAL = (AVERAGES, MASTERS)
PIPELINE, LORA = "pipeline", "lora"
_UNFINISHED, _REPLACED = ".unfinished-", ".replaced-"

MENDABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
"""A disk without room, or one that went read-only or away: a job is held for it, not failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """What a checkpoint belongs to."""

    job: str
    version: int
    global_step: int
    base_digest: str
    final: bool
    gradient_norms: tuple[float, ...] = ()
    """What the spike guard remembers, oldest first."""
    loss_scale: float = 0.0
    """Of float16, and for how many micro-batches; 0 where it was not written down."""
    clean: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Values read back: parameters and optimizer state by name, on the CPU, in memory of their own."""

    state: CheckpointState
    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    averages: Mapping[str, Tensor] = field(default_factory=dict)
    masters: Mapping[str, Tensor] = field(default_factory=dict)


def checkpoint_folder(runs_dir: Path, job: str, global_step: int) -> Path:
    return runs_dir / job / "checkpoints" / checkpoint_name(global_step)


def write_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int, extras: Callable[[Path], None]) -> str:
    """Write `folder` whole and delete the oldest beyond `keep`; `extras` adds files to it while it is still hidden.

    Returns the manifest's digest. Raises TaskFault("checkpoint") where the disk says no, with `retry` where that is
    `MENDABLE`; what was there stays.
    """
    hidden = folder.with_name(f"{_UNFINISHED}{folder.name}")
    try:
        _sweep(folder.parent)
        hidden.mkdir(parents=True)
        save_file(dict(checkpoint.weights), hidden / WEIGHTS)
        save_file(dict(checkpoint.optimizer), hidden / OPTIMIZER)
        for name, tensors in ((AVERAGES, checkpoint.averages), (MASTERS, checkpoint.masters)):
            if tensors:
                save_file(dict(tensors), hidden / name)
        (hidden / STATE).write_text(json.dumps(asdict(checkpoint.state), indent=1), "utf-8")
        extras(hidden)
        _write_manifest(hidden)
        digest = file_digest(hidden / MANIFEST)
        _sync_tree(hidden)
        _put_in_place(hidden, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(hidden, ignore_errors=True)
        retry = _is_mendable(error)
        raise TaskFault("checkpoint", f"{folder} cannot be written: {error}", retry=retry) from error
    _prune(folder, keep)
    return digest


def read_checkpoint(folder: Path, digest: str = "") -> Checkpoint:
    """Raises TaskFault("checkpoint") that names the file which is missing, torn or altered, or where the manifest has
    another digest than the one given."""
    try:
        _check_manifest(folder, digest)
        state = CheckpointState(**json.loads((folder / STATE).read_text("utf-8")))
        weights = load_file(folder / WEIGHTS)
        optimizer = load_file(folder / OPTIMIZER)
        averages, masters = (load_file(folder / name) if (folder / name).exists() else {} for name in _OPTIONAL)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise TaskFault("checkpoint", f"checkpoint {folder} cannot be read: {error}") from error
    return Checkpoint(
        state,
        {name: tensor.clone() for name, tensor in weights.items()},
        {name: tensor.clone() for name, tensor in optimizer.items()},
        {name: tensor.clone() for name, tensor in averages.items()},
        {name: tensor.clone() for name, tensor in masters.items()},
    )


def _is_mendable(error: Exception) -> bool:
    """Whether somebody can make it go away while the job waits. safetensors passes on the system's error as text
    only."""
    if isinstance(error, OSError):
        return error.errno in MENDABLE
    return any(f"(os error {number})" in str(error) for number in MENDABLE)


def _write_manifest(folder: Path) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": file_digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1), "utf-8")


def _check_manifest(folder: Path, digest: str) -> None:
    found = file_digest(folder / MANIFEST)
    if digest and found != digest:
        raise ValueError(f"its {MANIFEST} has the digest {found}, the checkpoint was written with {digest}")
    files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    for required in (WEIGHTS, OPTIMIZER, STATE):
        if required not in files:
            raise ValueError(f"{MANIFEST} does not name {required}")
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name} is missing")
        if path.stat().st_size != entry["bytes"]:
            raise ValueError(f"{name} has {path.stat().st_size} bytes, the manifest says {entry['bytes']}")
        if file_digest(path) != entry["blake2b"]:
            raise ValueError(f"{name} differs from its digest in the manifest")


def _sync_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put_in_place(hidden: Path, folder: Path) -> None:
    """Rename. An earlier incarnation's checkpoint of the same step makes room first and is deleted after."""
    replaced = folder.with_name(f"{_REPLACED}{folder.name}")
    if folder.exists():
        folder.rename(replaced)
    hidden.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """What a trainer that was killed while it wrote has left; a job has one trainer, so none of it is in use."""
    for prefix in (_UNFINISHED, _REPLACED):
        for leftover in parent.glob(f"{prefix}step-*"):
            shutil.rmtree(leftover)


def _prune(written: Path, keep: int) -> None:
    """Delete all but the newest `keep`, the one just written and final ones."""
    newest_first = list(reversed(checkpoints_in(written.parent).values()))
    for folder in newest_first[keep:]:
        if folder != written and not (folder / PIPELINE).is_dir():
            shutil.rmtree(folder, ignore_errors=True)
