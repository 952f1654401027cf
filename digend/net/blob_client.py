"""Pulls tensors from their owners, by reference, and checks them.

Must not know what the tensors mean. Invariant: a tensor that `pull` returns has the digests that the reference
covers; no memory is taken before its size was checked against dtype, shape and reference.
"""

from collections.abc import Callable, Collection, Sequence

from digend.net.addresses import BadAddress
from digend.net.blob_limits import MAX_PULL_BYTES, BlobLost
from digend.net.fetch import Fetch
from digend.net.incoming import Incoming
from digend.net.owner_link import OwnerLink
from digend.net.security import Security
from digend.net.swarm import Swarm
from digend.wire.refs import BlobRef
from digend.wire.tensors import Array


class BlobClient:
    """One a process, used by the tasks of one event loop. A connection to each owner is kept and shared."""

    def __init__(self, *, max_bytes: int = MAX_PULL_BYTES, security: Security | None = None) -> None:
        self._max_bytes = max_bytes
        self._security = security
        self._links: dict[str, OwnerLink] = {}

    async def pull(
        self, ref: BlobRef, names: Collection[str] | None = None, timeout_s: float = 10.0
    ) -> dict[str, Array]:
        """The blob's tensors (or those named), in manifest order. `timeout_s` of silence from the owner is too long.

        Raises BlobLost; BlobCorrupt, also for a name that the blob does not have.
        """
        link = self._link(ref, ref.owner)
        try:
            async with link.patience(timeout_s):
                incoming = await Fetch(link, ref, names, self._max_bytes).run()
        except TimeoutError:
            raise self._silent(link, ref, timeout_s) from None
        return incoming.tensors()

    async def pull_shared(
        self,
        ref: BlobRef,
        workers: Sequence[str],
        share: Callable[[str, Incoming], None],
        timeout_s: float = 10.0,
    ) -> dict[str, Array]:
        """The whole blob, from its owner and from workers (their addresses) that pull it too or have done so.

        `share(id, incoming)` is called before the first piece comes, so that this process can pass pieces on. A worker
        that does not have it, or goes away, costs nothing; `timeout_s` without a piece from anybody is too long.
        Raises as `pull`.
        """
        owner = self._link(ref, ref.owner)
        try:
            async with owner.patience(timeout_s):
                incoming = await Fetch(owner, ref, None, self._max_bytes).manifest()
        except TimeoutError:
            raise self._silent(owner, ref, timeout_s) from None
        share(ref.id, incoming)
        links = [link for address in workers if address != ref.owner and (link := self._worker(ref, address))]
        await Swarm(ref, incoming).run(owner, links, timeout_s)
        return incoming.tensors()

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _link(self, ref: BlobRef, address: str) -> OwnerLink:
        link = self._links.get(address)
        if link is None:
            try:
                link = self._links[address] = OwnerLink(address, self._security)
            except BadAddress as error:
                raise BlobLost(f"blob {ref.id}: {error}") from None
        return link

    def _worker(self, ref: BlobRef, address: str) -> OwnerLink | None:
        try:
            return self._link(ref, address)
        except BlobLost:
            return None

    def _silent(self, link: OwnerLink, ref: BlobRef, timeout_s: float) -> BlobLost:
        self._drop_if_idle(link)
        return BlobLost(f"blob {ref.id}: {link.trouble or f'{link.address} was silent for {timeout_s:g} s'}")

    def _drop_if_idle(self, link: OwnerLink) -> None:
        """A silent owner is likely dead, and its successor has another address."""
        if link.idle and self._links.get(link.owner) is link:
            del self._links[link.owner]
            link.close()
