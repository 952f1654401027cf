"""The data plane's limits and errors, shared by both ends."""

CHUNK_BYTES = 1024 * 1024
"""What a consumer asks an owner for at once, at most: a few pieces."""
CHUNKS = 32
"""As many as a blob comes in at least, where its size allows: what waits to be looked at is a few of them."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""What an owner sends at once. A blob of no more is one chunk where its owner is on this machine."""
WAITING_CHUNKS = 2
"""Chunks that have come and that nobody looked at yet; those behind them stay in the kernel's buffers and with the
owner.
"""
CREDIT_BYTES = 8 * 1024 * 1024
"""Asked for and not yet arrived, per owner, over all pulls."""
MIN_COST_BYTES = 64 * 1024
"""Credit that even the smallest request takes, so that their number is bounded too."""
MANIFEST_BYTES = 256 * 1024
"""What a consumer asks for of a manifest at once."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_PULL_BYTES = 256 * 1024**3


class BlobLost(Exception):
    """The owner is silent, does not hold the blob, or is another process than the one that made it."""


class BlobCorrupt(Exception):
    """What arrived is not what the reference promises; names the tensor."""
