"""Prompt embeddings that a process has pulled, by content: rollout and training use the very same tensors.

Invariant: an entry is found by the digest of its blob, so a stale or foreign embedding cannot be returned. The least
recently used go first; embeddings of a large text encoder are megabytes each.
"""

from collections import OrderedDict
from collections.abc import Iterable

from digend.engines.arrays import to_tensor
from digend.engines.protocols import Context
from digend.models.spec import Condition
from digend.wire.refs import BlobRef

MAX_CONDITIONS = 512


class Conditions:
    """A bounded cache in front of the blob servers."""

    def __init__(self, max_entries: int = MAX_CONDITIONS) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[str, Condition] = OrderedDict()

    def fetch(self, refs: Iterable[BlobRef], context: Context) -> dict[str, Condition]:
        """The condition of each blob, by digest. Raises TaskFault("blob_lost") before any is used."""
        fetched: dict[str, Condition] = {}
        for ref in refs:
            if ref.digest not in fetched:
                fetched[ref.digest] = self._get(ref, context)
        return fetched

    def _get(self, ref: BlobRef, context: Context) -> Condition:
        if ref.digest in self._entries:
            self._entries.move_to_end(ref.digest)
            return self._entries[ref.digest]
        condition = {name: to_tensor(array) for name, array in context.pull(ref).items()}
        self._entries[ref.digest] = condition
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return condition
