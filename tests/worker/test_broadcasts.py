"""A policy version by broadcast between workers: the bytes that a pull brings, or a failure within the time limit."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from digend.engines import broadcasts
from digend.engines.protocols import BroadcastFailed
from digend.net import flat
from digend.wire.refs import WeightsRef
from tests.worker.members import NAMES, Member, contents, place, version

SHORT_S = 0.3
NUM_ELEMENTS = 8_000_000


@pytest_asyncio.fixture
async def members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Member]]:
    """A trainer and two generators, in one process."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(flat, "CHUNK_BYTES", 1000)
    with TemporaryDirectory(prefix="dg") as folder:
        made = [Member(rank, Path(folder)) for rank in range(3)]
        yield made
        for each in made:
            each.close()


@pytest.mark.parametrize("changes", [True, False])
async def test_the_bytes_are_those_of_a_pull(members: list[Member], changes: bool) -> None:
    trainer, *generators = members
    before, after = version(0), version(1)
    weights = trainer.publish(before if changes else None, after)
    assert (weights.changes is not None) == changes
    sending = asyncio.create_task(trainer.broadcasts.send(weights, place(0)))
    received = await asyncio.gather(
        *(each.broadcasts.receive(weights, place(rank), before) for rank, each in enumerate(generators, start=1))
    )
    await sending
    pulled = await generators[0].blobs.pull_weights(weights, (), before)
    for tensors in received:
        assert contents(tensors) == contents(pulled) == contents(after)


async def test_the_whole_is_sent_where_one_lacks_the_version_before(members: list[Member]) -> None:
    trainer, one, other = members
    before, after = version(0), version(1)
    weights = trainer.publish(before, after)
    _, first, second = await asyncio.gather(
        trainer.broadcasts.send(weights, place(0)),
        one.broadcasts.receive(weights, place(1), None),
        other.broadcasts.receive(weights, place(2), before),
    )
    assert contents(first) == contents(second) == contents(after)
    late = await one.blobs.pull_weights(replace(weights, blob=weights.blob), (other.blobs.address,), None)
    assert contents(late) == contents(after), "a late one pulls it from any of them"


async def test_changes_that_lead_elsewhere_are_not_used(members: list[Member]) -> None:
    trainer, one, other = members
    before, after = version(0), version(1)
    weights = trainer.publish(before, after)
    spoilt = before | {"net/a": version(1)["net/a"]}
    sent = trainer.broadcasts.send(weights, place(0))
    received = [one.broadcasts.receive(weights, place(1), before), other.broadcasts.receive(weights, place(2), spoilt)]
    _, first, second = await asyncio.gather(sent, *received, return_exceptions=True)
    assert isinstance(first, dict)
    assert isinstance(second, dict), "what was changed already is changed to the same"
    wrong = {name: version(0, 5000)[name] for name in before}
    with pytest.raises(BroadcastFailed):
        await asyncio.gather(
            trainer.broadcasts.send(weights, place(0, epoch=2, members=NAMES[:2], timeout_s=5.0)),
            one.broadcasts.receive(weights, place(1, epoch=2, members=NAMES[:2], timeout_s=5.0), wrong),
        )


async def test_who_was_told_of_other_weights_gets_nothing(members: list[Member]) -> None:
    trainer, one, other = members
    weights = trainer.publish(None, version(1))
    for another in (replace(weights, num_tensors=9), replace(weights, blob=replace(weights.blob, digest="0" * 32))):
        fresh = replace(another, store=trainer.engine.open())
        failures = await asyncio.gather(
            one.broadcasts.receive(fresh, place(1), None),
            other.broadcasts.receive(replace(weights, store=fresh.store), place(2), None),
            trainer.broadcasts.send(replace(weights, store=fresh.store), place(0)),
            return_exceptions=True,
        )
        assert all("was told of another version" in str(each) for each in failures[:2])
        assert failures[2] is None, "the trainer only says so"


async def test_a_trainer_that_freed_the_version_sends_nothing(members: list[Member]) -> None:
    trainer, one, _ = members
    weights = trainer.publish(None, version(1))
    trainer.blobs.free([weights.blob.id])
    two = NAMES[:2]
    _, failure = await asyncio.gather(
        trainer.broadcasts.send(weights, place(0, members=two)),
        one.broadcasts.receive(weights, place(1, members=two, timeout_s=5.0), None),
        return_exceptions=True,
    )
    assert isinstance(failure, BroadcastFailed)


async def test_a_store_off_loopback_is_refused_without_an_interface(members: list[Member]) -> None:
    weights = replace(members[0].publish(None, version(1)), store="192.0.2.7:4711")
    with pytest.raises(BroadcastFailed, match=r"`interface` in \[generator\]"):
        await members[1].broadcasts.receive(weights, place(1), None)


async def test_the_next_ends_one_that_waits_for_others(members: list[Member]) -> None:
    trainer, one, _ = members
    weights = trainer.publish(None, version(1))
    waiting = asyncio.create_task(one.broadcasts.receive(weights, place(1), None))
    await asyncio.sleep(SHORT_S)
    assert one.broadcasts.busy
    newer, two = trainer.publish(None, version(1)), NAMES[:2]
    sending = asyncio.create_task(trainer.broadcasts.send(newer, place(0, epoch=2, members=two)))
    received = await one.broadcasts.receive(newer, place(1, epoch=2, members=two), None)
    assert contents(received) == contents(version(1))
    await sending
    with pytest.raises(BroadcastFailed, match="another broadcast has begun: its trainer has not come"):
        await waiting


async def test_one_that_is_given_up_ends_at_once(members: list[Member]) -> None:
    trainer, one, _ = members
    weights = trainer.publish(None, version(1))
    waiting = [
        asyncio.create_task(trainer.broadcasts.send(weights, place(0))),
        asyncio.create_task(one.broadcasts.receive(weights, place(1), None)),
    ]
    await asyncio.sleep(SHORT_S)
    for each in (trainer, one):
        each.broadcasts.give_up(replace(weights, blob=replace(weights.blob, id="another")))
    await asyncio.sleep(SHORT_S)
    assert not any(each.done() for each in waiting)
    for each in (trainer, one):
        each.broadcasts.give_up(weights)
    async with asyncio.timeout(10.0):
        await waiting[0]
        with pytest.raises(BroadcastFailed, match="a member is gone: n/generator/1 did not come"):
            await waiting[1]


# ------------------------------------------------------------------------------------------ processes of their own


def trainer_process(line: Connection, folder: str) -> None:
    async def live() -> None:
        member = Member(0, Path(folder))
        weights = member.publish(None, version(1, NUM_ELEMENTS))
        line.send(weights)
        await member.broadcasts.send(weights, place(0, timeout_s=60.0))
        await asyncio.sleep(60)

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    asyncio.run(live())


def generator_process(line: Connection, folder: str, rank: int, dies_after: int) -> None:
    """Receives, and pulls where that fails; says how. `dies_after`: so many runs of bytes (0: never)."""

    async def live(weights: WeightsRef) -> None:
        member = Member(rank, Path(folder))
        begun, failed = time.monotonic(), ""
        try:
            tensors = await member.broadcasts.receive(weights, place(rank, timeout_s=60.0), None)
        except BroadcastFailed as error:
            failed = str(error)
            tensors = await member.blobs.pull_weights(weights, (), None)
        line.send((failed, time.monotonic() - begun, contents(tensors) == contents(version(1, NUM_ELEMENTS))))

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if dies_after:
        share, runs = broadcasts.Circle.share, count(1)

        def dying(circle: broadcasts.Circle, data: memoryview) -> None:
            if next(runs) > dies_after:
                os._exit(9)
            share(circle, data)

        setattr(broadcasts.Circle, "share", dying)  # noqa: B010
    asyncio.run(live(line.recv()))


@pytest.mark.matrix
@pytest.mark.parametrize("dies_after", [0, 3])
def test_between_processes_one_of_which_dies_in_the_middle(dies_after: int) -> None:
    """18 MB in chunks of 8 MiB; the second receiver is gone after one of them, or never."""
    context = get_context("spawn")
    with TemporaryDirectory(prefix="dg") as folder:
        lines = [context.Pipe() for _ in range(3)]
        processes = [context.Process(target=trainer_process, args=(lines[0][1], folder), daemon=True)]
        processes += [
            context.Process(target=generator_process, args=(lines[rank][1], folder, rank, dies), daemon=True)
            for rank, dies in ((1, 0), (2, dies_after))
        ]
        try:
            for process in processes:
                process.start()
            weights = lines[0][0].recv()
            for near, _ in lines[1:]:
                near.send(weights)
            failed, seconds, equal = lines[1][0].recv()
            assert equal
            assert bool(failed) == bool(dies_after), failed
            assert seconds < 45.0, "well within the time limit and a pull"
            if not dies_after:
                failed, _, equal = lines[2][0].recv()
                assert equal
                assert not failed
        finally:
            for process in processes:
                process.kill()
                process.join()
