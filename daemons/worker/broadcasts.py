"""Policy versions by broadcast: what this worker sends as their trainer, and what it receives from one.

Owns the thread that broadcasts run on, beside the compute thread. Must not know how members meet (the engine does), nor
sessions. What is sent is the published blob, or that of the version's changes where every receiver has the version that
they are told against.

Invariant: `receive` gives all of a version, with the digests that its reference covers, or raises within its time
limit; nothing of a broadcast that failed is kept.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from daemons.worker.blobs import WorkerBlobs
from daemons.worker.faults import explain
from daemons.worker.identity import Identity
from daemons.worker.place import OffLoopback, check_place
from daemons.worker.thread import ComputeThread
from digend.engines.protocols import BroadcastEngine, BroadcastFailed, Circle
from digend.net import flat
from digend.net.blobs import BlobCorrupt, Held
from digend.telemetry.logs import logger
from digend.wire.broadcasts import Broadcast
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tensors import Array, BadTensor

log = logger()

T = TypeVar("T")

GRACE_S = 2.0
"""Past its time limit a broadcast has ended by itself, or its thread does not come back."""
CHANGES, WHOLE = "changes", "whole"
"""What a member can do with."""


class Limit:
    """How long a broadcast may take from now on, unless it is given up; `LeftS` of the engine."""

    def __init__(self, timeout_s: float) -> None:
        self._until_s = time.monotonic() + timeout_s
        self._why = ""

    def give_up(self, why: str) -> None:
        self._why = self._why or why

    def __call__(self) -> float:
        if self._why:
            raise BroadcastFailed(self._why)
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise BroadcastFailed("it was not over in time")
        return left_s


class Broadcasts:
    """Used from the event loop only. One at a time: the next one ends the one before it."""

    def __init__(self, identity: Identity, engine: Callable[[], BroadcastEngine], blobs: WorkerBlobs) -> None:
        self._identity = identity
        self._engine = engine
        self._blobs = blobs
        self._thread = ComputeThread("broadcast")
        self._going_on: tuple[BlobRef, Limit] | None = None

    @property
    def busy(self) -> bool:
        return self._thread.busy

    async def send(self, weights: WeightsRef, place: Broadcast) -> None:
        """As the version's trainer. Where it fails the receivers help themselves."""
        blobs = {ref.id: held for ref in weights.blobs if (held := self._blobs.held(ref.id)) is not None}
        own = CHANGES if weights.changes is not None else WHOLE
        about = {"job": weights.job, "version": weights.version, "epoch": place.epoch}
        try:
            await self._met(weights, place, own, partial(_send, weights, blobs))
            log.info("version broadcast", members=len(place.members), **about)
        except BroadcastFailed as error:
            log.warning("version not broadcast", error=str(error), **about)

    async def receive(
        self, weights: WeightsRef, place: Broadcast, before: Mapping[str, Array] | None
    ) -> Mapping[str, Array]:
        """`before`: the version that its changes are told against, where it is here. Raises BroadcastFailed."""
        own = CHANGES if weights.changes is not None and before is not None else WHOLE
        try:
            ref, blob = await self._met(weights, place, own, partial(_receive, weights))
            return await self._blobs.received(weights, ref, blob, before or {})
        except (BlobCorrupt, BadTensor) as error:
            raise BroadcastFailed(str(error)) from error

    def give_up(self, weights: WeightsRef) -> None:
        """A broadcast of this version, sent or received, ends if it goes on."""
        if self._going_on is not None and self._going_on[0] == weights.blob:
            self._going_on[1].give_up("a member is gone")

    async def _end_of_last(self) -> None:
        if self._going_on is None:
            return
        self._going_on[1].give_up("another broadcast has begun")
        over = asyncio.ensure_future(self._thread.call(lambda: None))
        done, _ = await asyncio.wait([over], timeout=GRACE_S)
        if not done:
            raise BroadcastFailed("the broadcast before it does not end")

    async def _met(self, weights: WeightsRef, place: Broadcast, own: str, act: Callable[[Circle], T]) -> T:
        """What `act` does once all members are there, on the thread. Raises BroadcastFailed."""
        who = self._identity
        try:
            check_place(weights.store, who.meet_at, who.role, "the members of a broadcast")
        except OffLoopback as error:
            raise BroadcastFailed(str(error)) from error
        await self._end_of_last()
        limit = Limit(place.timeout_s)
        self._going_on = weights.blob, limit
        meet = partial(self._engine().meet, weights.store, place, _told(weights), own, limit)
        try:
            async with asyncio.timeout(place.timeout_s + GRACE_S):
                return await self._thread.call(lambda: _together(meet, act))
        except (BroadcastFailed, BlobCorrupt):
            raise
        except TimeoutError:
            raise BroadcastFailed(f"torch.distributed did not return within {place.timeout_s:g} s") from None
        except Exception as error:
            raise BroadcastFailed(explain(error).message) from error


def _together(meet: Callable[[], Circle], act: Callable[[Circle], T]) -> T:
    circle = meet()
    try:
        return act(circle)
    finally:
        circle.close()


def _send(weights: WeightsRef, blobs: Mapping[str, Held], circle: Circle) -> None:
    ref = _sent(weights, circle)
    if ref.id not in blobs:
        raise BroadcastFailed(f"blob {ref.id} was freed")
    flat.send(blobs[ref.id], circle.share)


def _receive(weights: WeightsRef, circle: Circle) -> tuple[BlobRef, Held]:
    ref = _sent(weights, circle)
    return ref, flat.receive(ref, circle.share)


def _sent(weights: WeightsRef, circle: Circle) -> BlobRef:
    """The blob that is sent to these members."""
    changes = weights.changes
    return changes.blob if changes is not None and all(said == CHANGES for said in circle.said) else weights.blob


def _told(weights: WeightsRef) -> str:
    """What all members must have been told alike, in words."""
    blob = weights.blob
    return (
        f"{weights.job} incarnation {weights.incarnation} version {weights.version}, {weights.form}, "
        f"{weights.num_tensors} tensors, {blob.num_bytes} bytes, digest {blob.digest}"
    )
