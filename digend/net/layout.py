"""Tensors laid end to end: which bytes of which tensor lie where. Both ends of a pull go by it.

Must not know where the bytes are. Invariant: parts come in order, none is empty, and together they are the bytes asked
for, as far as there are any.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple


class Part(NamedTuple):
    """Bytes [begin, end) of a tensor."""

    name: str
    begin: int
    end: int


class Layout:
    """Of tensors by name, with their sizes in bytes, in the mapping's order."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._names = tuple(sizes)
        self._starts = (0, *accumulate(sizes.values()))

    @property
    def num_bytes(self) -> int:
        return self._starts[-1]

    def starts(self) -> Iterator[tuple[str, int]]:
        """Where each tensor begins."""
        return zip(self._names, self._starts, strict=False)

    def parts(self, offset: int, size: int) -> Iterator[Part]:
        """Bytes [offset, offset + size); neither is negative."""
        end = min(offset + size, self.num_bytes)
        number = bisect_right(self._starts, offset) - 1
        while offset < end:
            start, after = self._starts[number], self._starts[number + 1]
            if after > offset:
                yield Part(self._names[number], offset - start, min(end, after) - start)
                offset = after
            number += 1
