"""How unlike each other the samples of one prompt are: the sign of mode collapse that a reward does not show."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def diversity(samples: Sequence[NDArray[np.uint8]]) -> float:
    """The mean, over pairs, of the L2 distance of pixels in [-1, 1]. Needs two samples or more of one shape."""
    flat = [each.reshape(-1).astype(np.float64) / 127.5 - 1 for each in samples]
    distances = [float(np.linalg.norm(left - right)) for left, right in combinations(flat, 2)]
    return sum(distances) / len(distances)
