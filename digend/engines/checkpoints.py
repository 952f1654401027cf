"""Checkpoints on disk: `runs/JOB/checkpoints/step-000022`, complete or not there at all.

A checkpoint is a folder. Its tensors are of four kinds: `weights` (the trainable parameters by their published names),
`optimizer`, `averages` (`{average}/{parameter}`, where the job keeps averages) and `masters` (all of them in float32,
where the model is stored in half precision). A kind is one file, `weights.safetensors`, or where ranks that see the
same disk hold shards a file of each, `weights-00001-of-00004.safetensors` (digend.engines.stored). Beside them
`state.json` (counters and what it belongs to), in the last one also `pipeline/` (diffusers' layout, loads with the
stock library) and, for an adapter, `lora/`; and `manifest.json` with size and digest of every other file. Random state
needs no keeping: every draw is keyed (digend.rl.seeds).

Invariants: it is written into a hidden folder, synced, and renamed; a folder with another name or without a manifest is
no checkpoint. Whatever is read back is checked against the manifest first, and nothing is unpickled. A hidden folder's
name is drawn at random, so who sees it writes to the disk of whoever made it, and to no later checkpoint.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError

from digend.checkpoint_names import (
    AVERAGES,
    MANIFEST,
    MASTERS,
    OPTIMIZER,
    WEIGHTS,
    checkpoint_name,
    checkpoints_in,
    tensor_file,
    tensor_files,
)
from digend.engines.digests import file_digest
from digend.engines.protocols import TaskFault
from digend.engines.stored import Part, Stored, stored_in, write_part

STATE = "state.json"
KINDS, REQUIRED = (WEIGHTS, OPTIMIZER, AVERAGES, MASTERS), (WEIGHTS, OPTIMIZER)
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
    """One that can be read: parameters and optimizer state by name."""

    state: CheckpointState
    weights: Mapping[str, Stored]
    optimizer: Mapping[str, Stored]
    averages: Mapping[str, Stored]
    masters: Mapping[str, Stored]


@dataclass(frozen=True, slots=True)
class Entry:
    """Of a file, in the manifest."""

    num_bytes: int
    digest: str


def checkpoint_folder(runs_dir: Path, job: str, global_step: int) -> Path:
    return runs_dir / job / "checkpoints" / checkpoint_name(global_step)


# ---------------------------------------------------------------------------------------------------- writing


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Where the disk says no, raises TaskFault("checkpoint"), with `retry` where that is `MENDABLE`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        retry = _is_mendable(error)
        raise TaskFault("checkpoint", f"{folder} cannot be written: {error}", retry=retry) from error


def begin(folder: Path) -> Path:
    """The hidden folder in which `folder` is made. Raises TaskFault("checkpoint")."""
    hidden = folder.with_name(f"{_UNFINISHED}{folder.name}-{uuid4().hex}")
    with writing(folder):
        _sweep(folder.parent)
        hidden.mkdir(parents=True)
    return hidden


def write_tensors(hidden: Path, kind: str, part: Part, number: int = 1, count: int = 1) -> dict[str, Entry]:
    """Of `count` files of a kind the one with this number, from 1, synced. Raises OSError and SafetensorError."""
    path = hidden / tensor_file(kind, number, count)
    write_part(path, part)
    _sync(path)
    return {path.name: _entry(path)}


def finish(hidden: Path, folder: Path, state: CheckpointState, tensors: Mapping[str, Entry], keep: int) -> str:
    """Make a checkpoint of the hidden folder, once all tensors are in it, and delete the oldest beyond `keep`.

    Returns the manifest's digest. Raises OSError; what was there stays.
    """
    (hidden / STATE).write_text(json.dumps(asdict(state), indent=1), "utf-8")
    _write_manifest(hidden, tensors)
    digest = file_digest(hidden / MANIFEST)
    _sync_tree(hidden)
    _put_in_place(hidden, folder)
    _prune(folder, keep)
    return digest


def _is_mendable(error: Exception) -> bool:
    """Whether somebody can make it go away while the job waits. safetensors passes on the system's error as text
    only."""
    if isinstance(error, OSError):
        return error.errno in MENDABLE
    return any(f"(os error {number})" in str(error) for number in MENDABLE)


def _write_manifest(folder: Path, known: Mapping[str, Entry]) -> None:
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    entries = {name: known.get(name) or _entry(path) for name, path in paths.items()}
    files = {name: {"bytes": each.num_bytes, "blake2b": each.digest} for name, each in entries.items()}
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1), "utf-8")


def _entry(path: Path) -> Entry:
    return Entry(path.stat().st_size, file_digest(path))


# ---------------------------------------------------------------------------------------------------- reading


def read_checkpoint(folder: Path, digest: str = "", *, part: int = 0, of: int = 1) -> Checkpoint:
    """Several that read the same folder share the work: the one numbered `part` compares its share of the digests.

    Raises TaskFault("checkpoint") that names the file which is missing, torn or altered, or where the manifest has
    another digest than the one given.
    """
    try:
        files = _manifest(folder, digest)
        _check_files(folder, files, part, of)
        state = CheckpointState(**json.loads((folder / STATE).read_text("utf-8")))
        return Checkpoint(state, *tensors_in(folder, list(files), everywhere=of > 1).values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise TaskFault("checkpoint", f"checkpoint {folder} cannot be read: {error}") from error


def tensors_in(folder: Path, names: Sequence[str], *, everywhere: bool = False) -> dict[str, dict[str, Stored]]:
    """By kind, all of them; `names`: the files that are there. Raises as `stored_in` does."""
    return {kind: stored_in(folder, tensor_files(kind, names), everywhere=everywhere) for kind in KINDS}


def mark_of(folder: Path) -> str:
    """Equal where two processes see the very same checkpoint, not copies of it; "" where none can be read."""
    try:
        found = (folder / MANIFEST).stat()
        return f"{file_digest(folder / MANIFEST)} {found.st_ino} {found.st_ctime_ns}"
    except OSError:
        return ""


def _manifest(folder: Path, digest: str) -> dict[str, dict[str, int | str]]:
    found = file_digest(folder / MANIFEST)
    if digest and found != digest:
        raise ValueError(f"its {MANIFEST} has the digest {found}, the checkpoint was written with {digest}")
    files: dict[str, dict[str, int | str]] = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    needed = [name for kind in KINDS for name in tensor_files(kind, files) or _only(kind)]
    for required in (*needed, STATE):
        if required not in files:
            raise ValueError(f"{MANIFEST} does not name {required}")
    return files


def _only(kind: str) -> list[str]:
    """The files of a kind of which there are none."""
    return [tensor_file(kind, 1, 1)] if kind in REQUIRED else []


def _check_files(folder: Path, files: Mapping[str, Mapping[str, int | str]], part: int, of: int) -> None:
    """Names and sizes of all, digests of every `of`-th, the largest first."""
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name} is missing")
        if path.stat().st_size != entry["bytes"]:
            raise ValueError(f"{name} has {path.stat().st_size} bytes, the manifest says {entry['bytes']}")
    for name in sorted(files, key=lambda name: (-int(files[name]["bytes"]), name))[part::of]:
        if file_digest(folder / name) != files[name]["blake2b"]:
            raise ValueError(f"{name} differs from its digest in the manifest")


# ---------------------------------------------------------------------------------------------------- folders


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
