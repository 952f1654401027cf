"""What is asked of jobs and nodes, over real sockets: dry runs that are true, restarts, refusals, hanging cancels."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digend.config.node import NodeConfig
from digend.exitcodes import ExitCode
from digend.wire.pages import GetRecords, RecordList
from digend.wire.protocol import Refused
from digend.wire.records import WorkerState
from digend.wire.replies import Changed, ErrorReply, JobReply, StatusReply, Submitted
from digend.wire.requests import Cancel, Drain, GetStatus, Pause, Resume, SetPriority, ShowJob, Undrain
from digend.wire.views import Change, JobView, StatusView
from digend.wire.workers import Assign, Goodbye, Revoke, Welcome
from tests.driver.fakes import FakePeer, living
from tests.driver.world import Client, client_of, job_config, node_of, running


@asynccontextmanager
async def workers(node: NodeConfig) -> AsyncIterator[list[FakePeer]]:
    """A generator and a trainer that have joined and never do what they are told."""
    generator, trainer = FakePeer(node, "generator", "n/generator/0"), FakePeer(node, "trainer", "n/trainer/0")
    async with living(generator), living(trainer):
        for peer in (generator, trainer):
            await peer.until(Welcome)
        yield [generator, trainer]


async def ask(client: Client, kind: type, **fields: Any) -> Changed:
    return await client.ask(kind(request=client.next_request(), **fields), Changed)


async def refused(client: Client, kind: type, **fields: Any) -> tuple[int, str]:
    reply = await client.ask(kind(request=client.next_request(), **fields), ErrorReply)
    return reply.code, reply.message


async def job(client: Client, name: str) -> JobView:
    return (await client.ask(ShowJob(request=client.next_request(), job=name), JobReply)).job.job


async def status(client: Client) -> StatusView:
    return (await client.ask(GetStatus(request=client.next_request()), StatusReply)).status


async def test_a_queued_job_is_paused_and_stays_so_over_restarts(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")
        dry = await ask(client, Pause, job="a", by="ann", why="lunch", dry_run=True)
        assert (dry.state, dry.reason) == ("paused", "paused by ann: lunch")
        assert (await job(client, "a")).state == "queued"
        real = await ask(client, Pause, job="a", by="ann", why="lunch")
        assert replace(real, request="") == replace(dry, request=""), "a dry run says what then happens"
        assert real.changes == (
            Change(kind="job", name="a", before="queued", after="paused", reason="paused by ann: lunch"),
        )
    async with running(node), client_of(node) as client:
        assert (await job(client, "a")).state == "paused"
        assert (await ask(client, Resume, job="a")).state == "queued"
        assert (await ask(client, Resume, job="a")).changes == ()


async def test_priority_and_the_order_of_a_submit(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")
        later = replace(await client.submission(job_config(), job="b"), user="ann", priority=3)
        dry = await client.ask(replace(later, dry_run=True, request="dry"), Submitted)
        real = await client.ask(later, Submitted)
        assert replace(dry, request="") == replace(real, request="")
        assert (real.created, real.position, real.state) == (True, 0, "queued")
        view = await job(client, "b")
        assert (view.user, view.priority) == ("ann", 3)
        assert (await ask(client, SetPriority, job="a", priority=9)).name == "a"
        assert (await job(client, "a")).priority == 9
        code, message = await refused(client, SetPriority, job="a", priority=10**6)
        assert (code, message) == (ExitCode.USAGE, "priority 1000000: from -1000 to 1000")


async def test_a_dry_submit_takes_no_id(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        dry = await client.ask(replace(await client.submission(job_config()), dry_run=True), Submitted)
        assert (dry.job, dry.created) == ("job-001", True)
        assert (await client.submit(job_config())).job == "job-001"
        known = await client.ask(replace(await client.submission(job_config(), "job-001"), dry_run=True), Submitted)
        assert not known.created


async def test_requests_about_jobs_that_are_over(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")
        assert (await ask(client, Cancel, job="a", by="ann", dry_run=True)).reason == "by ann"
        assert (await job(client, "a")).state == "queued"
        assert (await ask(client, Cancel, job="a", after="global-step")).state == "cancelled"
        assert (await ask(client, Cancel, job="a")).changes == ()
        for kind, fields in ((Pause, {}), (Resume, {}), (SetPriority, {"priority": 1})):
            code, message = await refused(client, kind, job="a", **fields)
            assert (code, message) == (ExitCode.USAGE, "job a is cancelled: it is over")
        code, message = await refused(client, Pause, job="b")
        assert code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("m", ExitCode.NOT_FOUND, "no node or worker 'm'"),
        ("n/generator/7", ExitCode.NOT_FOUND, "did you mean n/generator/0?"),
        ("n/", ExitCode.USAGE, "several nodes begin with 'n/'"),
        ("", ExitCode.USAGE, "an empty name"),
    ],
)
async def test_a_target_that_nobody_has(tmp_path: Path, target: str, code: ExitCode, said: str) -> None:
    node = node_of(tmp_path)
    async with running(node), workers(node), client_of(node) as client:
        found = await refused(client, Drain, target=target, why="x")
        assert found[0] == code
        assert said in found[1]


async def test_a_drain_outlives_restarts_also_into_a_new_segment(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), workers(node), client_of(node) as client:
        dry = await ask(client, Drain, target="n/gen", by="ann", why="its fan", dry_run=True)
        assert (dry.name, dry.state, dry.reason) == ("n/generator/0", "drained", "by ann: its fan")
        assert (await status(client)).drains == ()
        await ask(client, Drain, target="n/gen", by="ann", why="its fan")
        nodes = {each.name: each for each in (await status(client)).nodes}
        assert (nodes["n/generator/0"].state, nodes["n/trainer/0"].state) == ("drained", "idle")
    async with running(node) as run, workers(node), client_of(node) as client:
        assert run.journal.segment == 2
        (drain,) = (await status(client)).drains
        assert (drain.target, drain.by, drain.why) == ("n/generator/0", "ann", "its fan")
        nodes = {each.name: each for each in (await status(client)).nodes}
        assert nodes["n/generator/0"].state == "drained"
        assert (await ask(client, Undrain, target="n/generator/0")).state == ""
        assert (await status(client)).drains == ()


async def test_a_worker_that_is_drained_with_its_node_too_stays_so(tmp_path: Path) -> None:
    node, generator = node_of(tmp_path), "n/generator/0"
    async with running(node), workers(node), client_of(node) as client:
        await ask(client, Drain, target=generator, by="ann", why="its fan")
        await ask(client, Drain, target="n", by="bob", why="new kernel")
        still = await ask(client, Undrain, target=generator)
        assert (still.state, still.reason) == ("drained", "with its node n by bob: new kernel")
        await ask(client, Drain, target=generator, by="ann", why="its fan")
        left = await ask(client, Undrain, target="n")
        assert (left.state, left.reason) == ("", f"drained by name: {generator}")
        assert [change.name for change in left.changes if not change.after] == ["n/trainer/0"]
        assert (await ask(client, Undrain, target=generator)).reason == ""


async def test_the_driver_answers_while_a_cancelled_worker_ignores_it(tmp_path: Path) -> None:
    """A worker that never stops: the job is over at once, whoever asks is answered, and the next job starts."""
    node = node_of(tmp_path)
    async with running(node), workers(node) as stuck, client_of(node) as client:
        await client.submit(job_config(), job="a")
        await client.submit(job_config(), job="b")
        for worker in stuck:
            await worker.until(Assign)
        assert (await ask(client, Cancel, job="a")).state == "cancelled"
        for worker in stuck:
            await worker.until(Revoke)
        seen = await status(client)
        assert seen.job is not None
        assert (seen.job.id, seen.job.state) == ("b", "preparing")
        assert (await job(client, "a")).reason == "by request"


async def test_a_goodbye_is_not_a_loss(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), workers(node) as (generator, _), client_of(node) as client:
        await client.submit(job_config(), job="a")
        await generator.until(Assign)
        generator.link.send(Goodbye(session=generator.session or "", reason="asked to stop"))
        generator.link.send(Goodbye(session="none", reason="the driver answers this one after that one"))
        await generator.until(Refused)
        request = GetRecords(request=client.next_request(), job="a", since=0)
        records = (await client.ask(request, RecordList)).records
        said = [record.body for record in records if isinstance(record.body, WorkerState)]
        assert (said[0].worker, said[0].state, said[0].reason) == ("n/generator/0", "left", "asked to stop")
        assert "lost" not in [body.state for body in said]
        assert not [problem for problem in (await status(client)).problems if "lost" in problem]
