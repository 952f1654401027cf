"""A full disk: work is held, nothing new is taken, nothing is lost, and it goes on when there is room."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from daemons.driver import main
from daemons.driver.journal import Turn
from daemons.driver.room import Room
from daemons.driver.schema import JournalFull
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.wire.replies import Changed, ErrorReply, JobList, StatusReply, Submitted
from digend.wire.requests import Drain, GetStatus, ListJobs
from digend.wire.workers import HeartbeatAck
from tests.driver.fakes import FakeWorker, living
from tests.driver.world import Client, client_of, job_config, node_of, running

SIZE = 32 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[NodeConfig]:
    """A node whose state lies on a file system of 32 MiB of its own."""
    folder = tmp_path / "state"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system of its own can be mounted by root only; see the test that limits the journal")
    yield node_of(tmp_path)
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: str) -> Path:
    """Takes all room that is left."""
    ballast = Path(folder) / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break
    return ballast


async def problems(client: Client) -> tuple[str, ...]:
    return (await client.ask(GetStatus(request=client.next_request()), StatusReply)).status.problems


async def problem(client: Client) -> str:
    """The first problem there is, soon."""
    async with asyncio.timeout(60):
        while True:
            for each in await problems(client):
                return each
            await asyncio.sleep(0.05)


async def test_a_full_disk_holds_the_job_and_lets_it_go_on(
    small_disk: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = small_disk.model_copy(
        update={"timing": small_disk.timing.model_copy(update={"torpid_s": 0.3, "lost_s": 0.6})}
    )
    monkeypatch.setattr(main, "Room", partial(Room, low_bytes=0, enough_bytes=0))
    config = job_config(training={"global_steps": 40}, eval={"enabled": False})
    async with running(node) as run, client_of(node) as client:
        generator = FakeWorker(node, "generator", "n/generator/0")
        async with living(generator), living(FakeWorker(node, "trainer", "n/trainer")) as trainer:
            later = await client.submission(job_config(), job="later")
            await client.submit(config, job="a")
            await trainer.when(lambda: "commit" in trainer.tasks)
            ballast = fill(node.state)
            assert "no room" in await problem(client)
            refused = await client.ask(later, ErrorReply)
            assert refused.code == ExitCode.DEGRADED
            assert "no room" in refused.message
            listed = (await client.ask(ListJobs(request=client.next_request()), JobList)).jobs
            assert listed[0].reason.startswith("waits: the journal has no room")

            # Far longer than it takes to be called lost: workers are answered, and nothing is decided about them.
            tasks, beats = len(trainer.tasks), len(await generator.until(HeartbeatAck))
            await generator.until(HeartbeatAck, beats + 25)
            assert len(trainer.tasks) == tasks
            assert run.journal.now_ns > 0

            ballast.unlink()
            detail = (await client.completed("a")).job
            assert detail.job.global_step == 40
            assert detail.counters["lost_workers"] == 0
            assert detail.counters["failed_tasks"] == 0
            assert await problems(client) == ()
            assert (await client.ask(later, Submitted)).created


async def test_a_journal_at_its_limit_holds_too(tmp_path: Path) -> None:
    """The same where nothing can be mounted: SQLite itself is out of pages."""
    node = node_of(tmp_path)
    async with running(node) as run, client_of(node) as client:
        later = await client.submission(job_config(), job="later")
        connection = run.journal.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        assert client.link.send(replace(await client.submission(job_config(), job="a"), toml="#" * 50_000))
        assert "no room" in await problem(client)
        assert (await client.ask(later, ErrorReply)).code == ExitCode.DEGRADED
        connection.execute("PRAGMA max_page_count = 1000000")
        # The submit that waited is acknowledged only now that it is on disk.
        async with asyncio.timeout(60):
            acknowledged = await anext(client.link.messages())
        assert isinstance(acknowledged, Submitted)
        assert (acknowledged.job, acknowledged.created) == ("a", True)
        assert not any("no room" in each for each in await problems(client))


async def test_a_disk_that_is_almost_full_takes_no_jobs_but_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(tmp_path)
    monkeypatch.setattr(main, "Room", partial(Room, low_bytes=1 << 60, enough_bytes=1 << 61))
    async with running(node), client_of(node) as client:
        assert "almost full" in await problem(client)
        with pytest.raises(AssertionError, match="almost full"):
            await client.submit(job_config())


def test_room_is_low_until_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((100, 9, 9, 15, 19, 20, 11, 9))
    monkeypatch.setattr("daemons.driver.room.free_bytes", lambda path: next(free))
    room = Room(tmp_path / "j", low_bytes=10, enough_bytes=20)
    events = [room.look() for _ in range(8)]
    grades = [None if event is None else event.full for event in events]
    assert grades == [None, True, None, None, None, False, None, True]
    assert "almost full" in room.reason


async def test_a_question_that_came_with_what_has_no_room_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One turn has both, and its change is acknowledged only when it is on disk."""
    node = node_of(tmp_path)
    async with running(node) as run, client_of(node) as client:
        generator = FakeWorker(node, "generator", "n/generator/0")
        async with living(generator):
            await generator.until(HeartbeatAck)
            commit, full = run.journal.commit, [True]

            def no_room(turn: Turn) -> None:
                if full:
                    raise JournalFull("the test took it")
                commit(turn)

            monkeypatch.setattr(run.journal, "commit", no_room)
            drain = Drain(request="drain", target="n/generator/0")
            assert client.link.send(drain)
            assert "no room" in "".join(await problems(client))
            full.clear()
            async with asyncio.timeout(60):
                changed = await anext(client.link.messages())
            assert isinstance(changed, Changed)
            assert changed.request == "drain"
