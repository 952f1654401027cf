"""Memory of a pull: the blob at its owner, the same at its consumer, and hardly more on the way."""

from pathlib import Path

import pytest

from benchmarks.data_plane import Pair
from benchmarks.plane_ends import MIB

MOST = 2.2


@pytest.mark.matrix
@pytest.mark.parametrize("way", ["plain", "digend", "digend CURVE"])
@pytest.mark.parametrize("mib", [4, 12, 64])
def test_no_more_than_two_copies_and_a_fifth(folder: Path, way: str, mib: int) -> None:
    """Of plain multipart it says that the measure counts right."""
    pair = Pair(way, mib * MIB, str(folder))
    try:
        for _ in range(8):
            owner, consumer = pair.once()
    finally:
        pair.close()
    copies = (owner.grown + consumer.grown) / (mib * MIB)
    assert 1.9 < copies < MOST
