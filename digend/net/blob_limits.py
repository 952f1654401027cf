"""The data plane's limits and errors, shared by both ends."""

CHUNK_BYTES = 1024 * 1024
"""What a consumer asks an owner for at once: a few pieces."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""What an owner sends at once."""
CREDIT_BYTES = 8 * 1024 * 1024
"""Asked for and not yet arrived, per owner, over all pulls."""
KEYED_CREDIT_BYTES = 4 * 1024 * 1024
"""The same where the connection is encrypted: each end then has what is on its way twice."""
MIN_COST_BYTES = 64 * 1024
"""Credit that even the smallest request takes, so that their number is bounded too."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_PULL_BYTES = 256 * 1024**3


class BlobLost(Exception):
    """The owner is silent, does not hold the blob, or is another process than the one that made it."""


class BlobCorrupt(Exception):
    """What arrived is not what the reference promises; names the tensor."""
