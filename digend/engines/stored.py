"""Tensors in safetensors files: a whole one, or its *slices* over several, read by name and row.

Owns where a slice lies: the metadata of its file names, for each tensor that is cut, the first row and how many rows
the whole has (`{"rows": {name: [first, rows]}}`, as JSON); a tensor that is not named there is whole. Cut are rows
only, dimension 0. Must not know what the tensors are of, nor ranks.

Invariants: what is read lies in memory of its own, aligned by torch, and no more of a file is read than the rows that
are asked for. The slices of a tensor are all its rows, each once, or nothing is read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Part:
    """What goes into one file: tensors on the CPU; `rows`: of each that is a slice, its first row and how many rows the
    whole has."""

    tensors: Mapping[str, Tensor]
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a tensor as they lie in one file. `total`: rows of the whole; None for a tensor that is not cut."""

    file: Any
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    first: int = 0
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor. Without pieces it is known by type and shape alone; `everywhere`: every rank has the pieces."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = ()
    everywhere: bool = False

    def whole(self) -> Tensor:
        if self.shape:
            return self.rows(0, self.shape[0])
        (piece,) = self.pieces
        value: Tensor = piece.file.get_tensor(piece.name).clone()
        return value

    def rows(self, first: int, stop: int) -> Tensor:
        """[stop - first, ...]."""
        if not self.pieces:
            raise RuntimeError("a tensor that lies elsewhere was to be read")
        found = torch.empty((stop - first, *self.shape[1:]), dtype=self.dtype)
        for piece in self.pieces:
            start, end = max(first, piece.first), min(stop, piece.first + piece.shape[0])
            if start < end:
                rows = piece.file.get_slice(piece.name)[start - piece.first : end - piece.first]
                found[start - first : end - first] = rows
        return found


def write_part(path: Path, part: Part) -> None:
    """Raises OSError and SafetensorError."""
    metadata = {ROWS: json.dumps(dict(sorted(part.rows.items())))} if part.rows else None
    save_file(dict(part.tensors), path, metadata)


def stored_in(folder: Path, files: Sequence[str], *, everywhere: bool = False) -> dict[str, Stored]:
    """All tensors of these files, by name. Raises ValueError for slices that do not fit together, OSError and
    SafetensorError."""
    pieces: dict[str, list[Piece]] = {}
    for name in files:
        file: Any = safe_open(folder / name, "pt")
        cut = json.loads((file.metadata() or {}).get(ROWS, "{}"))
        for key in file.keys():  # noqa: SIM118
            pieces.setdefault(key, []).append(_piece(file, key, cut.get(key)))
    return {key: _joined(key, found, everywhere) for key, found in pieces.items()}


def _piece(file: Any, name: str, cut: Sequence[int] | None) -> Piece:
    rows = file.get_slice(name)
    shape = tuple(rows.get_shape())
    dtype = (rows[:0] if shape else file.get_tensor(name)).dtype
    if cut is None:
        return Piece(file, name, dtype, shape)
    first, total = cut
    return Piece(file, name, dtype, shape, first, total)


def _joined(name: str, pieces: Sequence[Piece], everywhere: bool) -> Stored:
    one, total = pieces[0], pieces[0].total
    if total is None and len(pieces) == 1:
        return Stored(one.dtype, one.shape, (one,), everywhere)
    if total is None or any((each.total, *_kind(each)) != (total, *_kind(one)) for each in pieces):
        raise ValueError(f"{name} is in {len(pieces)} files that do not belong together")
    ordered, at = sorted(pieces, key=lambda each: (each.first, each.shape[0])), 0
    for each in ordered:
        if each.first != at:
            raise ValueError(f"{name}: row {min(at, each.first)} is in {'no file' if at < each.first else 'two files'}")
        at += each.shape[0]
    if at != total:
        raise ValueError(f"{name}: row {at} of {total} is in no file")
    return Stored(one.dtype, (total, *one.shape[1:]), tuple(ordered), everywhere)


def _kind(piece: Piece) -> tuple[torch.dtype, tuple[int, ...]]:
    return piece.dtype, piece.shape[1:]
