"""The archive thread's way to the blob servers, which live on the event loop.

Owns nothing. Invariant: `pull` ends within `timeout_s` and a second, whatever the owner does, and raises
`PicturesLost` only.
"""

import asyncio
import concurrent.futures
from collections.abc import Mapping, Sequence

from daemons.recorder.pictures import Film, PicturesLost
from digend.net.blobs import BlobClient, BlobCorrupt, BlobLost
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array, BadTensor, to_numpy


class BlobPuller:
    """Used from any thread but the loop's own."""

    def __init__(self, client: BlobClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> Mapping[str, Film]:
        """Tensors by name; `timeout_s` for all of them together. Raises PicturesLost."""
        waiting = asyncio.run_coroutine_threadsafe(self._pull(ref, names, timeout_s), self._loop)
        try:
            return {name: to_numpy(array) for name, array in waiting.result(timeout_s + 1.0).items()}
        except (BlobLost, BlobCorrupt, BadTensor) as error:
            raise PicturesLost(str(error)) from error
        except (TimeoutError, concurrent.futures.CancelledError):
            waiting.cancel()
            raise PicturesLost(f"blob {ref.id}: {ref.owner} took longer than {timeout_s:.1f} s") from None

    async def _pull(self, ref: BlobRef, names: Sequence[str], timeout_s: float) -> dict[str, Array]:
        async with asyncio.timeout(timeout_s):
            return await self._client.pull(ref, names, timeout_s)
