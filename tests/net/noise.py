"""Text that does not get smaller by pressing, for tests of limits."""

import random


def noise(num_bytes: int) -> str:
    """About so many bytes of UTF-8; pressed they are two thirds of it."""
    return random.Random(num_bytes).randbytes(num_bytes * 2 // 3).decode("latin-1")
