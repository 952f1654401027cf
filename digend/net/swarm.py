"""Which piece of a blob is asked of whom, where workers pull it that can pass pieces on to each other.

Must not know what the blob is. Invariants: a piece is asked of one source at a time and comes once; it is held only
after its digest was checked, wherever it came from. A source that fails loses what it was asked for to the others.
"""

import asyncio
import random
from contextlib import suppress
from functools import partial

from digend.net.blob_limits import BlobCorrupt, BlobLost
from digend.net.incoming import Incoming, Piece, unpacked_bits
from digend.net.owner_link import OwnerLink
from digend.wire.refs import BlobRef

FIRST_POLL_S, POLL_S = 0.005, 0.05
"""How often a worker that is still pulling is asked which pieces it has: often at first, a small blob is soon over."""
FEWEST, MOST = 2, 32
"""Pieces asked of one source at a time: more while they come fast, fewer where a slow link would queue them up."""
FAST_S, SLOW_S = 0.1, 0.5


class Swarm:
    """One pull. `by_source`: bytes that came from each address."""

    def __init__(self, ref: BlobRef, incoming: Incoming) -> None:
        self._ref = ref
        self._incoming = incoming
        self._todo = {piece.number: piece for piece in _shuffled(incoming)}
        """Asked of nobody at present."""
        self._rare = dict.fromkeys(self._todo)
        """Those that no worker is known to have."""
        self._left = len(self._todo)
        self._returned = asyncio.Event()
        self._arrived = asyncio.Event()
        self.by_source: dict[str, int] = {}

    async def run(self, owner: OwnerLink, workers: list[OwnerLink], timeout_s: float) -> None:
        """Raises BlobLost, BlobCorrupt."""
        sources = [asyncio.create_task(self._from_owner(owner, timeout_s))]
        sources += [asyncio.create_task(self._from_worker(link, timeout_s)) for link in workers]
        try:
            while self._left:
                self._arrived.clear()
                news = asyncio.ensure_future(self._arrived.wait())
                alive = [source for source in sources if not source.done()]
                if not alive:
                    raise _first_error(sources, self._ref)
                done, _ = await asyncio.wait([news, *alive], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if not done:
                    raise BlobLost(f"blob {self._ref.id}: nobody sent a piece for {timeout_s:g} s")
                for source in alive:
                    if source.done() and isinstance(source.exception(), BlobCorrupt):
                        source.result()
        finally:
            for source in sources:
                source.cancel()
            await asyncio.gather(*sources, return_exceptions=True)

    async def _from_owner(self, link: OwnerLink, timeout_s: float) -> None:
        """Pieces that no worker has come first: what the owner sends once, the others pass on."""
        window = _Window()
        try:
            async with asyncio.TaskGroup() as group:
                while self._left:
                    await window.room()
                    self._returned.clear()
                    number = next(iter(self._rare or self._todo), None)
                    if number is None:
                        await self._returned.wait()
                    else:
                        self._begin(group, link, number, window, timeout_s)
        except ExceptionGroup as errors:
            raise _worst(errors) from None

    async def _from_worker(self, link: OwnerLink, timeout_s: float) -> None:
        """Ends without a word where the worker is gone, or sends what is wrong."""
        window, held, everything, pause_s = _Window(), b"", False, FIRST_POLL_S
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                while self._left:
                    if not everything:
                        held, everything = await self._asked(link, timeout_s)
                    here = [each for each in self._todo if everything or (each < len(held) and held[each])]
                    for number in here:
                        self._rare.pop(number, None)
                    for number in here:
                        await window.room()
                        if number in self._todo:
                            self._begin(group, link, number, window, timeout_s)
                    await asyncio.sleep(pause_s)
                    pause_s = min(POLL_S, 1.25 * pause_s)

    def _begin(
        self, group: asyncio.TaskGroup, link: OwnerLink, number: int, window: "_Window", timeout_s: float
    ) -> None:
        self._rare.pop(number, None)
        piece = self._todo.pop(number)
        begun = window.begin()
        taking = group.create_task(self._take(link, piece, timeout_s))
        taking.add_done_callback(lambda taken: self._taken(taken, piece, window, begun))

    def _taken(self, taken: "asyncio.Task[None]", piece: Piece, window: "_Window", begun: float) -> None:
        """However it ended: a task that is cancelled before it began runs nothing of its own."""
        window.ended(begun)
        if taken.cancelled() or taken.exception() is not None:
            self._todo[piece.number] = piece
            self._returned.set()

    async def _asked(self, link: OwnerLink, timeout_s: float) -> tuple[bytes, bool]:
        """What a worker has, and whether that is all. One that has not begun has nothing yet."""
        held: list[bytes] = []
        try:
            async with link.patience(timeout_s):
                left = await (await link.ask_pieces(self._ref.id, lambda told: held.extend(map(bytes, told))))
        except BlobLost:
            return b"", False
        return unpacked_bits(b"".join(held)), left == 0

    async def _take(self, link: OwnerLink, piece: Piece, timeout_s: float) -> None:
        """Raises BlobLost, BlobCorrupt; the piece is asked of another then."""
        try:
            sink = partial(self._incoming.take, piece.offset, piece.size)
            async with link.patience(timeout_s):
                await (await link.ask(self._ref.id, piece.offset, piece.size, sink))
        except TimeoutError:
            raise BlobLost(f"blob {self._ref.id}: {link.trouble or f'{link.address} was silent'}") from None
        self._left -= 1
        self.by_source[link.address] = self.by_source.get(link.address, 0) + piece.size
        self._arrived.set()


class _Window:
    """How many pieces are asked of one source at a time."""

    def __init__(self) -> None:
        self._size = FEWEST
        self._open = 0
        self._freed = asyncio.Event()

    async def room(self) -> None:
        """Waits until one more may be asked."""
        while self._open >= self._size:
            self._freed.clear()
            await self._freed.wait()

    def begin(self) -> float:
        """The time of now, for `ended`."""
        self._open += 1
        return asyncio.get_running_loop().time()

    def ended(self, begun: float) -> None:
        took_s = asyncio.get_running_loop().time() - begun
        self._open -= 1
        if took_s < FAST_S:
            self._size = min(self._size + 1, MOST)
        elif took_s > SLOW_S:
            self._size = max(self._size - 1, FEWEST)
        self._freed.set()


def _shuffled(incoming: Incoming) -> list[Piece]:
    """Each receiver in another order, so that they soon have pieces for each other."""
    pieces = list(incoming.wanted())
    random.shuffle(pieces)
    return pieces


def _worst(group: ExceptionGroup[Exception]) -> Exception:
    errors = list(group.exceptions)
    return next((error for error in errors if isinstance(error, BlobCorrupt)), errors[0])


def _first_error(sources: "list[asyncio.Task[None]]", ref: BlobRef) -> Exception:
    for source in sources:
        error = None if source.cancelled() else source.exception()
        if isinstance(error, BlobLost | BlobCorrupt):
            return error
    return BlobLost(f"blob {ref.id}: nobody has it any more")
