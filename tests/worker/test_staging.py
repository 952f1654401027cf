"""Staging on its own: what is wanted, what is dropped, what is told."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from daemons.worker import staging
from daemons.worker.staging import Key, StageMeans, Staging
from digend.engines.protocols import BroadcastFailed, TaskFault
from digend.wire.broadcasts import Broadcast
from digend.wire.refs import BlobRef, WeightsRef
from digend.wire.tensors import Array
from digend.wire.workers import Staged, StageFailed
from tests.worker.fake_engine import weights_of

BROKEN = 2


def place(epoch: int) -> Broadcast:
    return Broadcast(epoch=epoch, rank=1, members=("n/trainer/0", "n/generator/0"), timeout_s=1.0)


def weights(version: int, incarnation: int = 0, job: str = "j") -> WeightsRef:
    blob = BlobRef(owner="ipc://x", instance="i", id="i-0", num_bytes=3, digest="d")
    return WeightsRef(blob=blob, job=job, incarnation=incarnation, version=version, num_tensors=3, form="full")


class Bench:
    """Pulls that end when the test says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.faults: list[TaskFault] = []
        self.pulls = 0
        self.told: list[Key] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.freed: list[str] = []
        self.given_up: list[WeightsRef] = []
        self.before: list[Mapping[str, Array] | None] = []
        means = StageMeans(
            pull=self._pull,
            receive=self._receive,
            give_up=self.given_up.append,
            free=self.freed.extend,
            check=self._check,
            report=self.told.append,
            spawn=self._spawn,
        )
        self.staging = Staging(means)

    async def _pull(
        self, wanted: WeightsRef, workers: Sequence[str], before: Mapping[str, Array] | None
    ) -> Mapping[str, Array]:
        self.pulls += 1
        self.before.append(before)
        if self.faults:
            raise self.faults.pop(0)
        await self.gate.wait()
        return weights_of(wanted.version)

    async def _receive(
        self, wanted: WeightsRef, place: Broadcast, before: Mapping[str, Array] | None
    ) -> Mapping[str, Array]:
        self.before.append(before)
        if place.epoch == BROKEN:
            raise BroadcastFailed("n/generator/1 did not come")
        return weights_of(wanted.version)

    async def _check(self, wanted: WeightsRef, tensors: Mapping[str, Array]) -> int:
        return len(tensors)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    async def settle(self) -> None:
        self.gate.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_a_version_is_pulled_once_and_told_each_time_it_is_asked_for() -> None:
    bench = Bench()
    for _ in range(3):
        bench.staging.want(weights(1))
    await bench.settle()
    bench.staging.want(weights(1))
    assert bench.pulls == 1
    assert bench.told == [("j", 0, 1)] * 2
    [told] = bench.staging.news("s")
    assert isinstance(told, Staged)
    assert told.pull_ns > 0
    assert told.check_ns > 0
    assert replace(told, pull_ns=0, check_ns=0) == Staged(session="s", job="j", incarnation=0, version=1, num_bound=3)


async def test_retire_drops_what_is_older_even_on_its_way() -> None:
    bench = Bench()
    bench.staging.want(weights(1))
    bench.staging.want(weights(2))
    bench.staging.want(weights(1, job="k"))
    await asyncio.sleep(0)
    bench.staging.retire("j", 2)
    await bench.settle()
    assert bench.staging.get("j", 0, 1) is None
    assert bench.staging.get("j", 0, 2) is not None
    assert bench.staging.get("k", 0, 1) is not None
    bench.staging.end("j")
    assert bench.staging.newest("j") == (-1, ())
    assert bench.staging.newest("k") == (0, (1,))


async def test_a_version_of_an_older_incarnation_stays_until_it_is_retired() -> None:
    """A micro-batch that was generated before the trainer was lost may have to be completed under its version."""
    bench = Bench()
    bench.staging.want(weights(5))
    bench.staging.want(weights(5, incarnation=1))
    await bench.settle()
    bench.staging.retire("j", 5)
    assert bench.staging.get("j", 0, 5) is not None
    assert bench.staging.newest("j") == (1, (5,))


async def test_an_owner_that_is_lost_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "RETRY_DELAYS_S", (0.0, 0.0))
    bench = Bench()
    bench.faults = [TaskFault("blob_lost", "silent"), TaskFault("blob_lost", "silent")]
    bench.staging.want(weights(1))
    await bench.settle()
    assert bench.pulls == 3
    assert bench.staging.get("j", 0, 1) is not None


async def test_a_failure_is_told_until_the_version_is_wanted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "RETRY_DELAYS_S", ())
    bench = Bench()
    bench.faults = [TaskFault("blob_lost", "silent")]
    bench.staging.want(weights(1))
    await bench.settle()
    (failed,) = bench.staging.news("s")
    assert isinstance(failed, StageFailed)
    assert failed.error.reason == "blob_lost"
    bench.staging.want(weights(1))
    assert bench.staging.news("s") == []
    await bench.settle()
    assert isinstance(bench.staging.news("s")[0], Staged)


async def test_weights_errors_are_not_tried_again() -> None:
    bench = Bench()
    bench.faults = [TaskFault("weights", "digest")]
    bench.staging.want(weights(1))
    await bench.settle()
    assert bench.pulls == 1
    assert isinstance(bench.staging.news("s", ("j", 0, 1))[0], StageFailed)


async def test_what_is_broadcast_is_not_pulled() -> None:
    bench = Bench()
    bench.staging.want(weights(1), (), place(epoch=1))
    await bench.settle()
    assert bench.pulls == 0
    (told,) = bench.staging.news("s")
    assert isinstance(told, Staged)
    assert (told.by, told.fell_back, told.num_bound) == ("broadcast", "", 3)


async def test_where_no_broadcast_came_the_same_version_is_pulled_and_that_is_told() -> None:
    bench = Bench()
    bench.staging.want(weights(1), (), place(epoch=BROKEN))
    await bench.settle()
    assert bench.pulls == 1
    (told,) = bench.staging.news("s")
    assert isinstance(told, Staged)
    assert (told.by, told.fell_back) == ("pull", "n/generator/1 did not come")


async def test_a_version_that_is_wanted_without_its_broadcast_gives_that_up() -> None:
    bench = Bench()
    bench.staging.want(weights(1), (), place(epoch=1))
    bench.staging.want(weights(1), (), place(epoch=1))
    assert not bench.given_up
    bench.staging.want(weights(1))
    assert bench.given_up == [weights(1)]
    await bench.settle()


async def test_where_neither_brings_it_the_version_is_not_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "RETRY_DELAYS_S", ())
    bench = Bench()
    bench.faults = [TaskFault("blob_lost", "silent")]
    bench.staging.want(weights(1), (), place(epoch=BROKEN))
    await bench.settle()
    assert isinstance(bench.staging.news("s")[0], StageFailed)
    assert bench.staging.get("j", 0, 1) is None
