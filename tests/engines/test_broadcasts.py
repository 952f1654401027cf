"""Members of a broadcast meet by gloo, or learn within the time limit why not."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from daemons.worker.broadcasts import Limit
from digend.engines import broadcasts
from digend.engines.broadcasts import Broadcasts
from digend.engines.protocols import BroadcastFailed, Circle
from digend.wire.broadcasts import Broadcast

MEMBERS = ("n/trainer/0", "n/generator/0", "n/generator/1")
TOLD = "shapes-001 version 3"
SHORT_S, LONG_S = 0.3, 30.0

Meet = Callable[..., "Future[Circle]"]


def place(rank: int, *, epoch: int = 1, members: tuple[str, ...] = MEMBERS) -> Broadcast:
    return Broadcast(epoch=epoch, rank=rank, members=members, timeout_s=LONG_S)


class Room:
    """A trainer with a store, and a thread for each member."""

    def __init__(self) -> None:
        self.trainer = Broadcasts("cpu", "127.0.0.1")
        self.address = self.trainer.open()
        self._pool = ThreadPoolExecutor(8)
        self._begun: list[Future[Circle]] = []

    def meet(
        self, at: Broadcast, told: str = TOLD, own: str = "whole", limit_s: float = LONG_S, address: str = ""
    ) -> "Future[Circle]":
        each = self.trainer if at.rank == 0 else Broadcasts("cpu", "127.0.0.1")
        left_s = Limit(limit_s)
        self._begun.append(self._pool.submit(each.meet, address or self.address, at, told, own, left_s))
        return self._begun[-1]

    def all(self) -> list[Circle]:
        return [each.result() for each in [self.meet(place(rank), own=str(rank)) for rank in range(3)]]

    def share(self, circle: Circle, data: bytearray) -> "Future[None]":
        return self._pool.submit(circle.share, memoryview(data))

    def close(self) -> None:
        for each in self._begun:
            if each.exception() is None:
                each.result().close()
        self._pool.shutdown()


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    made = Room()
    yield made
    made.close()


def test_all_get_the_bytes_of_rank_0_and_know_what_each_said(room: Room) -> None:
    circles = room.all()
    assert [list(each.said) for each in circles] == [["0", "1", "2"]] * 3
    for size in (1, 8, 100_000):
        data = [bytearray([rank]) * size for rank in (7, 0, 1)]
        for future in [room.share(circle, each) for circle, each in zip(circles, data, strict=True)]:
            future.result()
        assert data == [bytearray([7]) * size] * 3


def test_who_is_missing_is_named_once_the_time_is_over(room: Room) -> None:
    begun = time.monotonic()
    there = [room.meet(place(rank), limit_s=SHORT_S) for rank in (0, 1)]
    for each in there:
        with pytest.raises(BroadcastFailed, match="n/generator/1 did not come"):
            each.result()
    assert time.monotonic() - begun >= SHORT_S


def test_another_epoch_is_refused_by_whoever_was_told_of_it(room: Room) -> None:
    first = room.meet(place(0), limit_s=SHORT_S)
    with pytest.raises(BroadcastFailed, match="of epoch 1, and this worker was told of epoch 4"):
        room.meet(place(1, epoch=4)).result()
    with pytest.raises(BroadcastFailed, match="n/generator/0, n/generator/1 did not come"):
        first.result()


def test_all_are_told_when_one_knows_of_another_version(room: Room) -> None:
    told = [room.meet(place(0)), room.meet(place(1)), room.meet(place(2), told="shapes-001 version 2")]
    for each in told:
        with pytest.raises(BroadcastFailed, match=r"was told of another version: shapes-001 version \d, not"):
            each.result()


def test_one_member_more_is_none_of_them(room: Room) -> None:
    more = (*MEMBERS, "n/generator/2")
    there = [room.meet(place(rank)) for rank in range(3)]
    with pytest.raises(BroadcastFailed, match="rank 0 is n/trainer/0, who knows of the members n/trainer/0, n/gen"):
        room.meet(place(3, members=more)).result()
    assert [list(each.result().said) for each in there] == [["whole"] * 3] * 3


def test_a_place_is_taken_once(room: Room) -> None:
    trainer = room.meet(place(0))
    one = room.meet(place(1))
    taken = replace(place(1), members=(MEMBERS[0], "n/generator/7", MEMBERS[2]))
    last = room.meet(place(2))
    for each in (trainer, one, last):
        each.result()
    with pytest.raises(BroadcastFailed, match="rank 1 is taken by n/generator/0"):
        room.meet(taken).result()


def test_who_leaves_in_the_middle_ends_it_for_the_others(room: Room) -> None:
    circles = room.all()
    waiting = [room.share(circle, bytearray(1000)) for circle in circles[1:]]
    circles[0].close()
    for each in waiting:
        with pytest.raises(BroadcastFailed):
            each.result()


def test_who_stands_still_in_the_middle_costs_the_time_limit(room: Room) -> None:
    there = [room.meet(place(rank), limit_s=2 * SHORT_S) for rank in range(3)]
    circles = [each.result() for each in there]
    waiting = room.share(circles[1], bytearray(1000))
    with pytest.raises(BroadcastFailed, match="not over in time"):
        waiting.result()


def test_where_no_trainer_listens_it_is_over_in_time(room: Room) -> None:
    with pytest.raises(BroadcastFailed):
        room.meet(place(1), limit_s=SHORT_S, address="127.0.0.1:1").result()
    with pytest.raises(BroadcastFailed, match="its trainer has not come"):
        room.meet(place(1), limit_s=SHORT_S).result()


def test_the_stores_of_older_versions_are_closed(room: Room) -> None:
    for _ in range(broadcasts.NUM_STORES):
        room.trainer.open()
    with pytest.raises(BroadcastFailed, match="no store is open at"):
        room.meet(place(0), limit_s=SHORT_S).result()
