"""The data plane, both ends: `BlobServer` holds and serves tensors, `BlobClient` pulls and checks them."""

from digend.net.blob_client import BlobClient
from digend.net.blob_limits import BlobCorrupt, BlobLost
from digend.net.blob_server import BlobServer, Held

__all__ = ["BlobClient", "BlobCorrupt", "BlobLost", "BlobServer", "Held"]
