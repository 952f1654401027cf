"""Snapshots: whoever goes on from one answers as whoever stepped through all batches does, byte for byte."""

import random
from pathlib import Path

import msgpack
import pytest

from broker.core import Core
from broker.harness import Simulation
from daemons.driver import packing, shell, snapshots
from daemons.driver.journal import Journal, Turn
from daemons.driver.main import _newest_snapshot
from daemons.driver.replay import bring_up_to_date, verify
from daemons.driver.summaries import Summaries
from digend.wire import codec, protocol
from digend.wire.protocol import PROTOCOL
from tests.broker.support import evaluation, finished, job
from tests.driver.fakes import FakeRecorder, FakeWorker, living
from tests.driver.world import client_of, job_config, journal_path, node_of, running

KINDS = {
    "planned": finished(job(strategy="planned", num_global_steps=3, evaluation=evaluation(2, every=1))),
    "stale": finished(job(strategy="always", staleness=0.5, num_global_steps=3)),
    "dedicated": finished(job(scoring="dedicated", num_global_steps=2), 2, 2),
    "colocated": finished(job(generators=(), num_global_steps=2, evaluation=evaluation(1)), 0),
}


def stepped(simulation: Simulation, until: int) -> tuple[Core, Summaries]:
    core = Core()
    summaries = Summaries(core)
    for batch in simulation.batches[:until]:
        for command in core.step(batch.now_ns, batch.events):
            if hasattr(command, "record"):
                summaries.add(command.record)
    return core, summaries


@pytest.mark.parametrize("kind", KINDS)
def test_going_on_from_a_snapshot_gives_the_same_commands(kind: str) -> None:
    simulation = KINDS[kind]
    rng = random.Random(kind)
    for until in sorted(rng.sample(range(1, len(simulation.batches)), 12)):
        kept = snapshots.taken(*stepped(simulation, until))
        core, summaries = snapshots.restored(kept)
        assert snapshots.taken(core, summaries) == kept
        for batch in simulation.batches[until:]:
            commands = core.step(batch.now_ns, batch.events)
            assert packing.packed(commands) == packing.packed(batch.commands)
            for command in commands:
                if hasattr(command, "record"):
                    summaries.add(command.record)
        assert summaries.detail("j1") == stepped(simulation, len(simulation.batches))[1].detail("j1")


def test_another_digend_s_or_a_damaged_one_is_refused() -> None:
    kept = snapshots.taken(*stepped(KINDS["planned"], 40))
    stamp, root, classes, objects = msgpack.unpackb(kept, strict_map_key=False)
    other = [
        ["broker.state", "Job", ["spec"]] if name == "Job" else [home, name, names] for home, name, names in classes
    ]
    evil = [["subprocess", "Popen", []], *classes[1:]]
    for spoilt in (
        [f"{stamp} or so", root, classes, objects],
        [stamp, root, other, objects],
        [stamp, root, evil, objects],
        [stamp, root, classes, objects[:3]],
        [stamp, ["r", 10**6], classes, objects],
        [stamp, None, classes, objects],
        7,
    ):
        with pytest.raises(snapshots.SnapshotUnusable):
            snapshots.restored(msgpack.packb(spoilt))
    with pytest.raises(snapshots.SnapshotUnusable):
        snapshots.restored(kept[:-7])


def test_a_journal_goes_on_behind_its_newest_snapshot(tmp_path: Path) -> None:
    simulation = KINDS["planned"]
    journal = Journal(tmp_path / "driver.sqlite")
    journal.begin(now_ns=0)
    for at, batch in enumerate(simulation.batches):
        journal.commit(Turn(now_ns=batch.now_ns, events=tuple(batch.events), commands=tuple(batch.commands)))
        if at + 1 in (20, 50):
            journal.keep(snapshots.taken(*stepped(simulation, at + 1)))
    core, summaries, after = _newest_snapshot(journal)
    assert bring_up_to_date(core, summaries, journal.batches(after=after)) == len(simulation.batches) - 50
    assert summaries.detail("j1") == stepped(simulation, len(simulation.batches))[1].detail("j1")
    journal.connection.execute("UPDATE snapshots SET body = x'00'")
    assert _newest_snapshot(journal)[2] == 0, "unreadable: all batches again"
    journal.close()


async def test_a_driver_takes_them_and_starts_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "SNAPSHOT_BATCHES", 10)
    node = node_of(tmp_path)
    async with (
        running(node),
        living(FakeWorker(node, "generator", "n/generator/0")),
        living(FakeWorker(node, "trainer", "n/trainer/0")),
        living(FakeRecorder(node)),
        client_of(node) as client,
    ):
        name = (await client.submit(job_config())).job
        before = await client.completed(name)
    journal = Journal(journal_path(node))
    kept = journal.snapshot()
    assert kept is not None
    assert kept[0] > 10
    journal.close()
    async with running(node), client_of(node) as client:
        assert (await client.completed(name)).job.job == before.job.job


async def test_a_journal_of_an_earlier_protocol_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade that raised the number: jobs of before are listed with all that is known of them, new ones run."""
    node = node_of(tmp_path)
    workers = (
        FakeWorker(node, "generator", "n/generator/0"),
        FakeWorker(node, "trainer", "n/trainer/0"),
        FakeRecorder(node),
    )
    monkeypatch.setattr(shell, "SNAPSHOT_BATCHES", 10)
    async with running(node), living(workers[0]), living(workers[1]), living(workers[2]), client_of(node) as client:
        old = (await client.submit(job_config())).job
        before = await client.completed(old)
    for module in (codec, protocol, snapshots):
        monkeypatch.setattr(module, "PROTOCOL", PROTOCOL + 1)
    journal = Journal(journal_path(node), read_only=True)
    assert verify(Core(), journal.batches())[1] is None, "replay compares what was said, not the number"
    journal.close()
    async with running(node), client_of(node) as client:
        again = await client.completed(old)
        assert (again.job.job, again.job.num_records) == (before.job.job, before.job.num_records)
