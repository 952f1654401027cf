"""Where tensors wait, and how many bytes: words for people.

Must not know how they are told. Invariant: what is on disk is not counted as memory too.
"""

from collections.abc import Iterator

from clients.words import plural, size
from digend.wire.views import NodeView, StatusView


def total(status: StatusView) -> str:
    """`96 MiB in memory, 12 MiB on disk`; "" where nothing waits."""
    return _places(status.held_bytes, status.spooled_bytes)


def lines(status: StatusView) -> Iterator[str]:
    """The total, then each worker that holds some, with its limits."""
    holders = [node for node in status.nodes if node.held_bytes]
    if not holders:
        yield "none wait"
        return
    yield f"{total(status)}, at {plural(len(holders), 'worker')}"
    for node in holders:
        yield f"{node.name}: {of_worker(node)}"


def of_worker(node: NodeView) -> str:
    """`90 MiB in memory (limit 1.0 GiB), 12 MiB on disk (limit 2.0 GiB)`."""
    return _places(node.held_bytes, node.spooled_bytes, node.memory_limit_bytes, node.spool_limit_bytes)


def spooled(node: NodeView) -> str:
    """`12 MiB of 2.0 GiB`; without the limit where nothing is on disk."""
    return f"{size(node.spooled_bytes)} of {size(node.spool_limit_bytes)}" if node.spooled_bytes else "-"


def _places(held: int, on_disk: int, memory_limit: int | None = None, disk_limit: int = 0) -> str:
    in_memory = held - on_disk
    places = [f"{size(in_memory)} in memory" + _limit(memory_limit)] if in_memory else []
    if on_disk:
        places.append(f"{size(on_disk)} on disk" + _limit(disk_limit or None))
    return ", ".join(places)


def _limit(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f" (limit {size(num_bytes)})"
