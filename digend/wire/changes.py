"""What changed between two versions of the same tensors, as tensors: smaller to send, exact to the bit.

Owns the form. Must not know torch, sockets or what the tensors mean. Invariant: what was taken from `before`
and `after`, applied to `before`, gives the bits of `after`.

A tensor of which few elements changed travels as two: `gaps/NAME` (little-endian uint16, how many elements lie between
one and the next; where more than 65,535 do, an unchanged element in between is sent too) and `values/NAME` (the new
elements). One that changed throughout travels as `whole/NAME`, one that did not change not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from digend.wire.tensors import DTYPES, Array, BadTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GAPS, VALUES, WHOLE = "gaps/", "values/", "whole/"
_GAP_BYTES = 2
_MAX_GAP = 2**16 - 1
_SAMPLES = 4096


def changes_between(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, Array] | None:
    """None where the whole of `after` is no larger, or the two are not versions of the same tensors."""
    if {name: _form(each) for name, each in before.items()} != {name: _form(each) for name, each in after.items()}:
        return None
    found: dict[str, Array] = {}
    for name, array in after.items():
        found |= _changed(name, before[name], array)
    smaller = sum(each.num_bytes for each in found.values()) < sum(each.num_bytes for each in after.values())
    return found if smaller else None


def apply_changes(before: Mapping[str, Array], changes: Mapping[str, Array]) -> dict[str, Array]:
    """`after`, in its order. What did not change shares memory with `before`. Raises BadTensor."""
    after = dict(before)
    for name, array in changes.items():
        kind, _, tensor = name.partition("/")
        if tensor not in before:
            raise BadTensor(f"changes name {name!r}, and the version that they are for has no such tensor")
        if f"{kind}/" == WHOLE:
            after[tensor] = array
        elif f"{kind}/" == VALUES:
            after[tensor] = _applied(before[tensor], changes.get(GAPS + tensor), array, name)
    return after


def _changed(name: str, before: Array, after: Array) -> dict[str, Array]:
    import numpy as np

    old, new = _elements(before), _elements(after)
    if _mostly(old, new):
        return {WHOLE + name: after}
    where = _without_wide_gaps(np.flatnonzero(old != new))
    if not where.size:
        return {}
    if where.size * (_GAP_BYTES + new.itemsize) >= after.num_bytes:
        return {WHOLE + name: after}
    gaps = (np.diff(where, prepend=-1) - 1).astype("<u2")
    values = np.ascontiguousarray(new[where])
    return {
        GAPS + name: Array("uint8", (gaps.nbytes,), gaps.view(np.uint8).data),
        VALUES + name: Array(after.dtype, values.shape, values.view(np.uint8).data),
    }


def _mostly(old: NDArray[Any], new: NDArray[Any]) -> bool:
    """Whether so much changed, going by a part of it, that looking for the rest does not pay."""
    stride = max(1, old.size // _SAMPLES)
    return old.size > _SAMPLES and bool((old[::stride] != new[::stride]).mean() > 0.9)


def _without_wide_gaps(where: NDArray[Any]) -> NDArray[Any]:
    """Places with others in between, so that each is at most 65,536 after the one before it."""
    import numpy as np

    starts = np.concatenate([[-1], where[:-1]]) if where.size else where
    wide = np.flatnonzero(where - starts > _MAX_GAP + 1)
    between = [np.arange(starts[at] + _MAX_GAP + 1, where[at], _MAX_GAP + 1) for at in wide]
    return np.sort(np.concatenate([where, *between])) if between else where


def _applied(before: Array, gaps: Array | None, values: Array, name: str) -> Array:
    import numpy as np

    width = DTYPES[before.dtype]
    if gaps is None or values.dtype != before.dtype or gaps.num_bytes * width != values.num_bytes * _GAP_BYTES:
        raise BadTensor(f"changes {name!r}: gaps and values do not fit each other, or the tensor")
    after = _elements(before).copy()
    where = np.cumsum(np.frombuffer(gaps.data, "<u2").astype(np.int64) + 1) - 1
    if where.size and where[-1] >= after.size:
        raise BadTensor(f"changes {name!r} reach past the tensor's end")
    after[where] = _elements(values)
    return Array(before.dtype, before.shape, after.view(np.uint8).data)


def _elements(array: Array) -> NDArray[np.unsignedinteger[Any]]:
    """As bit patterns, flat."""
    import numpy as np

    return np.frombuffer(array.data, f"<u{DTYPES[array.dtype]}") if array.data else np.empty(0, "<u1")


def _form(array: Array) -> tuple[str, tuple[int, ...]]:
    return (array.dtype, tuple(array.shape))
