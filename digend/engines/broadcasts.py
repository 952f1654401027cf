"""Broadcasts of policy versions by torch.distributed: the stores that a trainer opens for them, and how members meet.

Owns a process group for each broadcast, beside whatever groups the process has: NCCL where each member has a GPU of its
own, gloo else. Must not know tensors, digests or versions: it compares what members were told as text, and moves bytes.

Invariant: no byte is sent before all members have said the same and nobody else has taken a place. Every wait ends when
`left_s()` raises: time is over, or it was given up. A group that failed is let go of in the background: a transfer that
nobody answers is over for gloo only when its time is.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import BroadcastOptions, PrefixStore, Store  # type: ignore[attr-defined]

from digend.engines.devices import gpu_uuid
from digend.engines.protocols import BroadcastFailed, LeftS
from digend.engines.ranks.store import ASK_S, reach, serve
from digend.wire.broadcasts import Broadcast

NUM_STORES = 2
"""That of the newest version, and that of the one before it, whose broadcast may be going on."""
EPOCH = "epoch"
FIRST_POLL_S, LONGEST_POLL_S = 0.0002, 0.02
FOREVER = timedelta(days=30)
NCCL_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class Broadcasts:
    """Of one process. `host`: where it listens, as a trainer."""

    def __init__(self, device: str, host: str) -> None:
        self._device, self._host = device, host
        self._stores: dict[str, Store] = {}

    def open(self) -> str:
        """Serve a store for one broadcast; returns host:port. Raises TaskFault("config")."""
        store, address = serve(self._host)
        self._stores[address] = store
        for old in list(self._stores)[:-NUM_STORES]:
            del self._stores[old]
        return address

    def meet(self, address: str, place: Broadcast, agreed: str, own: str, left_s: LeftS) -> "Circle":
        """See `digend.engines.protocols.BroadcastEngine`."""
        try:
            store = self._stores.get(address) if place.rank == 0 else _reached(address, left_s)
            if store is None:
                raise BroadcastFailed(f"no store is open at {address} any more")
            store.set_timeout(timedelta(seconds=left_s()))
            met = PrefixStore("broadcast", store)
            words = _words_of_all(met, place, agreed, (own, gpu_uuid(self._device) or ""), left_s)
            gpus = [gpu for _, gpu in words]
            alone = all(gpus) and len(set(gpus)) == len(gpus)
            return Circle(met, place, [said for said, _ in words], self._device if alone else None, left_s)
        except (RuntimeError, ValueError) as error:
            raise BroadcastFailed(_brief(error)) from error


class Circle:
    """The members of one broadcast, met. `device`: NCCL on it; None: gloo."""

    def __init__(self, store: Store, place: Broadcast, said: Sequence[str], device: str | None, left_s: LeftS) -> None:
        self.said = said
        self._rank, self._device, self._left_s = place.rank, device, left_s
        store, left = PrefixStore("group", store), timedelta(seconds=left_s())
        self._group: Any = (
            distributed.ProcessGroupGloo(store, place.rank, len(place.members), left)
            if device is None
            else _nccl_group(store, place, device)
        )

    def share(self, data: memoryview) -> None:
        """See `digend.engines.protocols.Circle`."""
        host = torch.frombuffer(data, dtype=torch.uint8)
        there = host if self._device is None else host.to(self._device)
        if failed := self._moved(there):
            raise BroadcastFailed(failed)
        if there is not host and self._rank:
            host.copy_(there)

    def _moved(self, there: Tensor) -> str:
        """Why not, else "". No error leaves here: its frames would hold the connections, which are to close."""
        options = BroadcastOptions()
        options.rootRank = 0
        try:
            if self._device is None:
                options.timeout = timedelta(seconds=self._left_s())
            self._finish(self._group.broadcast([there], options))
        except (RuntimeError, BroadcastFailed) as error:
            return _brief(error)
        return ""

    def close(self) -> None:
        """Waits for nobody."""
        held = [self._group]
        self._group = None
        threading.Thread(target=_let_go, args=(held, self._device is not None), name="leave", daemon=True).start()

    def _finish(self, work: Any) -> None:
        """Asked again and again, because torch's own wait has its own idea of time with each backend."""
        pause_s = FIRST_POLL_S
        while not work.is_completed():
            self._left_s()
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_POLL_S)
        work.wait()


def _reached(address: str, left_s: LeftS) -> Store:
    """Asked again and again, so that it may be given up meanwhile."""
    while True:
        try:
            return reach(address, min(ASK_S, left_s()), threading.Event())
        except RuntimeError as error:
            why = _brief(error)
        try:
            left_s()
        except BroadcastFailed as failed:
            raise BroadcastFailed(f"{failed}: {why}") from None


def _words_of_all(
    store: Store, place: Broadcast, agreed: str, own: tuple[str, str], left_s: LeftS
) -> list[tuple[str, str]]:
    """What each member says for itself, by rank. Raises BroadcastFailed where they were not told the same."""
    if place.rank == 0:
        store.set(EPOCH, str(place.epoch))
    _wait(store, [EPOCH], left_s, lambda missing: "its trainer has not come")
    epoch = store.get(EPOCH).decode()
    if epoch != str(place.epoch):
        raise BroadcastFailed(f"the broadcast is of epoch {epoch}, and this worker was told of epoch {place.epoch}")
    mine = json.dumps([place.members[place.rank], list(place.members), agreed, *own])
    there = store.compare_set(_key(place.rank), "", mine).decode()
    if there != mine:
        raise BroadcastFailed(f"rank {place.rank} is taken by {json.loads(there)[0]}")
    keys = [_key(rank) for rank in range(len(place.members))]
    _wait(store, keys, left_s, lambda missing: f"{', '.join(place.members[at] for at in missing)} did not come")
    words = [json.loads(each) for each in store.multi_get(keys)]
    for rank, (name, members, told, *_) in enumerate(words):
        if (name, tuple(members)) != (place.members[rank], place.members):
            raise BroadcastFailed(f"rank {rank} is {name}, who knows of the members {', '.join(members)}")
        if told != agreed:
            raise BroadcastFailed(f"{name} was told of another version: {told}, not {agreed}")
    return [(said, gpu) for *_, said, gpu in words]


def _key(rank: int) -> str:
    return f"member/{rank}"


def _wait(store: Store, keys: list[str], left_s: LeftS, lacking: Callable[[list[int]], str]) -> None:
    """Until the store has all of them. torch's own wait complains on stderr each time it ends."""
    pause_s = FIRST_POLL_S
    while not store.check(keys):
        try:
            left_s()
        except BroadcastFailed as failed:
            missing = [at for at, key in enumerate(keys) if not store.check([key])]
            raise BroadcastFailed(f"{failed}: {lacking(missing)}") from None
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_POLL_S)


def _nccl_group(store: Store, place: Broadcast, device: str) -> Any:
    """NCCL's own watchdog would end the process where a member is lost; here only the broadcast is given up."""
    torch.cuda.set_device(device)
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = FOREVER
    with _variable(NCCL_ERRORS, "0"):
        return distributed.ProcessGroupNCCL(store, place.rank, len(place.members), options)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _let_go(held: list[Any], abort: bool) -> None:
    group = held.pop()
    if abort:
        group.abort()


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0].partition(". This")[0][:300] if str(error) else type(error).__name__
