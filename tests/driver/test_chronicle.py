"""Stories over real sockets: in pages, after a restart, of jobs whose batches the journal has dropped."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from daemons.driver import chronicle
from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.wire.pages import GetStory, StoryPage
from digend.wire.replies import DriverReply, ErrorReply, JobFile, JobReply, NodeList, StatusReply
from digend.wire.requests import GetDriver, GetJobFile, GetStatus, ListNodes, ShowJob
from digend.wire.story import Transition
from tests.driver.fakes import FakeRecorder, FakeWorker, living
from tests.driver.world import Client, client_of, job_config, journal_path, node_of, running

JOB = "job-001"


async def story(client: Client, subject: str) -> tuple[list[Transition], int]:
    """Transitions, and the number of pages they came in."""
    told: list[Transition] = []
    cursor, pages = None, 0
    while True:
        page = await client.ask(GetStory(request=client.next_request(), subject=subject, cursor=cursor), StoryPage)
        told += page.transitions
        cursor, pages = page.cursor, pages + 1
        if cursor is None:
            return told, pages


@asynccontextmanager
async def cluster(node: NodeConfig) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(node))
        await stack.enter_async_context(living(FakeWorker(node, "generator", "n/generator/0")))
        await stack.enter_async_context(living(FakeWorker(node, "trainer", "n/trainer/0")))
        await stack.enter_async_context(living(FakeRecorder(node)))
        yield await stack.enter_async_context(client_of(node))


async def run_job(client: Client) -> None:
    submitted = await client.submit(job_config())
    async with asyncio.timeout(30):
        while True:
            reply = await client.ask(ShowJob(request=client.next_request(), job=submitted.job), JobReply)
            if reply.job.job.state == "completed":
                return
            await asyncio.sleep(0.02)


def whats(told: Sequence[Transition]) -> str:
    return "\n".join(each.what for each in told)


async def test_stories_of_a_job_and_after_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_of(tmp_path)
    async with cluster(node) as client:
        await run_job(client)
        job, _ = await story(client, JOB)
        assert job[0].what == "submitted: 3 global steps"
        assert "completed" in whats(job)
        micro_batch, pages = await story(client, f"{JOB}/1/0")
        assert "leased: generate" in whats(micro_batch)
        assert "policy version 2 published" in whats(micro_batch)
        assert pages == 2  # the second finds the journal's end
        monkeypatch.setattr(chronicle, "PAGE_BATCHES", 5)
        in_small_pages, pages = await story(client, f"{JOB}/1/0")
        assert in_small_pages == micro_batch
        assert pages > 5
        monkeypatch.undo()
        assert "HELLO" in whats((await story(client, "n/generator/0"))[0])
        assert (await story(client, f"{JOB}/9/9"))[0] == []

    async with cluster(node) as client:
        assert whats((await story(client, f"{JOB}/1/0"))[0]) == whats(micro_batch)

    for _ in range(4):  # the journal keeps so many segments
        async with running(node):
            pass
    async with cluster(node) as client:
        from_records, _ = await story(client, f"{JOB}/1/0")
        assert "generate done in" in whats(from_records)
        assert "update done in" in whats(from_records)
        assert "leased" not in whats(from_records)
        again, _ = await story(client, JOB)
        assert "global step 3 closed" in whats(again)
        assert again[-1].what == "completed"


async def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    async with cluster(node_of(tmp_path)) as client:
        bad = await client.ask(GetStory(request=client.next_request(), subject="n/printer/0"), ErrorReply)
        assert bad.code == ExitCode.USAGE
        missing = await client.ask(GetStory(request=client.next_request(), subject="job-9/0/0"), ErrorReply)
        assert missing.code == ExitCode.NOT_FOUND
        nothing = await client.ask(GetJobFile(request=client.next_request(), job="job-9"), ErrorReply)
        assert nothing.code == ExitCode.NOT_FOUND


async def test_the_driver_says_where_it_keeps_things(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config())
        assert (await client.ask(GetJobFile(request=client.next_request(), job=JOB), JobFile)).toml == "name = 'job'\n"
        place = (await client.ask(GetDriver(request=client.next_request()), DriverReply)).driver
        assert place.journal == str(journal_path(node))
        assert (place.state, place.runs) == (node.state, node.runs)
        assert set(place.free_bytes) == {"journal", "state"}  # nobody has made runs yet
        assert not place.by_systemd


async def test_a_worker_tells_its_host_and_its_clock(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    worker = FakeWorker(node, "generator", "n/generator/0")
    worker.greeting = replace(worker.greeting, host="gpu-box")
    worker.clock_ahead_s = 90.0
    async with running(node), living(worker), client_of(node) as client:
        async with asyncio.timeout(60):
            while True:
                nodes = (await client.ask(ListNodes(request=client.next_request()), NodeList)).nodes
                if nodes and nodes[0].clock_ahead_s is not None:
                    break
                await asyncio.sleep(0.02)
        assert nodes[0].host == "gpu-box"
        assert nodes[0].clock_ahead_s == pytest.approx(90.0, abs=5.0)


async def test_the_driver_says_how_many_bytes_wait_where(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    workers = [FakeWorker(node, "generator", f"n/generator/{number}") for number in range(2)]
    workers[0].waiting = {"held_bytes": 700, "spooled_bytes": 300, "memory_limit_bytes": 400, "spool_limit_bytes": 900}
    workers[1].waiting = {"held_bytes": 50}
    async with running(node), living(workers[0]), living(workers[1]), client_of(node) as client:
        async with asyncio.timeout(60):
            while True:
                status = (await client.ask(GetStatus(request=client.next_request()), StatusReply)).status
                if status.held_bytes == 750:
                    break
                await asyncio.sleep(0.02)
        assert status.spooled_bytes == 300
        first, second = sorted(status.nodes, key=lambda each: each.name)
        assert (first.held_bytes, first.spooled_bytes) == (700, 300)
        assert (first.memory_limit_bytes, first.spool_limit_bytes) == (400, 900)
        assert (second.held_bytes, second.memory_limit_bytes, second.spool_limit_bytes) == (50, None, 0)
