"""Uploads, submits, cancels and questions of clients, over real sockets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemons.driver import queries
from digend import plugins
from digend.config.job import JobConfig
from digend.config.prompts import PromptRow, content_digest, packed_prompts
from digend.exitcodes import ExitCode
from digend.wire.pages import GetRecords, GetStory, RecordList
from digend.wire.protocol import Refused as WireRefused
from digend.wire.records import JobState
from digend.wire.replies import Changed, ErrorReply, JobList, JobReply, QueueReply, StatusReply, Submitted, Uploaded
from digend.wire.requests import Cancel, Drain, GetQueue, GetStatus, ListJobs, Pause, ShowJob, Submit, Upload
from digend.wire.story import StoryCursor
from tests.driver.world import Client, client_of, job_config, node_of, running


async def jobs(client: Client) -> dict[str, str]:
    reply = await client.ask(ListJobs(request=client.next_request()), JobList)
    return {each.id: each.state for each in reply.jobs}


async def refused(client: Client, message: Any, code: ExitCode) -> str:
    reply = await client.ask(message, ErrorReply)
    assert reply.code == code, reply.message
    return reply.message


async def test_the_same_job_twice_is_one_job(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        first = await client.submit(job_config(), job="mine")
        again = await client.submit(job_config(), job="mine")
        assert (first.job, first.created) == ("mine", True)
        assert (again.job, again.created) == ("mine", False)
        assert list(await jobs(client)) == ["mine"]


async def test_jobs_are_listed_in_pages_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LISTED_JOBS", 2)
    node = node_of(tmp_path)
    names = [f"j{number}" for number in range(5)]
    async with running(node), client_of(node) as client:
        for name in names:
            await client.submit(job_config(), job=name)
        pages: list[JobList] = []
        before = ""
        while not pages or pages[-1].earlier:
            pages.append(await client.ask(ListJobs(request=client.next_request(), before=before), JobList))
            before = pages[-1].jobs[0].id
        assert [[job.id for job in page.jobs] for page in pages] == [["j3", "j4"], ["j1", "j2"], ["j0"]]
        assert [page.earlier for page in pages] == [3, 1, 0]
        message = await refused(client, ListJobs(request="r", before="j9"), ExitCode.NOT_FOUND)
        assert "no job j9" in message


async def test_other_content_under_a_known_id_is_refused_with_both_digests(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="mine")
        other = await client.submission(job_config(training={"learning_rate": 1e-5}), job="mine")
        message = await refused(client, other, ExitCode.USAGE)
        words = [word.strip(",") for word in message.split()]
        digests = [word for word in words if len(word) == 32 and set(word) <= set("0123456789abcdef")]
        assert len(set(digests)) == 2, message
        assert list(await jobs(client)) == ["mine"]


async def test_without_an_id_the_next_free_one_is_taken(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    (tmp_path / "runs" / "job-002").mkdir(parents=True)
    async with running(node), client_of(node) as client:
        taken = [(await client.submit(job_config())).job for _ in range(2)]
        assert taken == ["job-001", "job-003"]
        third = await client.submit(job_config())
        assert (third.job, third.position) == ("job-004", 2)


async def test_a_run_folder_of_no_known_job_is_not_written_into(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    (tmp_path / "runs" / "old").mkdir(parents=True)
    async with running(node), client_of(node) as client:
        assert "old" in await refused(client, await client.submission(job_config(), job="old"), ExitCode.USAGE)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (job_config(algorithm={"name": "flow_gpro"}), "flow_grpo"),
        (job_config(model={"family": "flax"}), "flux"),
        (job_config(algorithm={"options": {"window_sise": 2}}), "window_size"),
        (job_config(algorithm={"options": {"window_size": 9, "window_range": [0, 9]}}), "window"),
        (job_config(data={"prompts_per_rollout": 50}), "prompts_per_rollout"),
    ],
)
async def test_a_job_that_cannot_run_is_refused_at_once(tmp_path: Path, config: JobConfig, named: str) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        message = await refused(client, await client.submission(config), ExitCode.BAD_CONFIG)
        assert named in message
        assert await jobs(client) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"config": "{"}, ExitCode.USAGE),
        ({"config": "[]"}, ExitCode.USAGE),
        ({"config": '{"name": "x", "nmae": 1}'}, ExitCode.BAD_CONFIG),
        ({"prompts": "ab" * 32}, ExitCode.USAGE),
        ({"prompts": "../../etc/passwd"}, ExitCode.USAGE),
        ({"job": "../escape"}, ExitCode.USAGE),
    ],
)
async def test_a_wrong_request_is_refused(tmp_path: Path, change: dict[str, str], code: ExitCode) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        good = await client.submission(job_config())
        fields = {name: getattr(good, name) for name in Submit.__slots__}
        await refused(client, Submit(**{**fields, **change}), code)
        assert await jobs(client) == {}


async def test_an_upload_goes_on_where_it_stopped_and_must_match_its_digest(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    content = packed_prompts([PromptRow("a prompt of some length")] * 12_000)
    digest, half = content_digest(content), 100_000
    size = len(content)

    async with running(node), client_of(node) as client:

        def chunk(offset: int, data: bytes, digest: str = digest) -> Upload:
            return Upload(request=client.next_request(), digest=digest, offset=offset, size=size, data=data)

        first = await client.ask(chunk(0, content[:half]), Uploaded)
        assert (first.complete, first.next_offset) == (False, half)
        again = await client.ask(chunk(0, content[:half]), Uploaded)
        assert (again.complete, again.next_offset) == (False, half)
        offset = half
        while offset < size:
            reply = await client.ask(chunk(offset, content[offset : offset + half]), Uploaded)
            offset = reply.next_offset
        assert reply.complete
        known = await client.ask(chunk(0, content[:10]), Uploaded)
        assert (known.complete, known.next_offset) == (True, size)

        wrong = "00" * 32
        small = Upload(request=client.next_request(), digest=wrong, offset=0, size=3, data=b"abc")
        assert wrong in await refused(client, small, ExitCode.USAGE)
        big = Upload(request=client.next_request(), digest=wrong, offset=0, size=1 << 40, data=b"abc")
        await refused(client, big, ExitCode.USAGE)


async def test_cancel_and_its_repetition(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")
        await client.submit(job_config(), job="b")
        for _ in range(2):
            reply = await client.ask(Cancel(request=client.next_request(), job="a"), Changed)
            assert (reply.name, reply.state) == ("a", "cancelled")
        assert (await jobs(client))["a"] == "cancelled"
        assert (await jobs(client))["b"] not in ("cancelled", "failed")


@pytest.mark.parametrize("kind", [ShowJob, Cancel])
async def test_an_unknown_job_is_answered_with_the_nearest(tmp_path: Path, kind: type) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="shapes-001")
        message = await refused(client, kind(request=client.next_request(), job="shape-001"), ExitCode.NOT_FOUND)
        assert "did you mean shapes-001" in message
        unlike = await refused(client, kind(request=client.next_request(), job="zzz"), ExitCode.NOT_FOUND)
        assert "did you mean" not in unlike


async def test_records_come_in_order_and_say_when_they_end(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")

        async def ask(since: int) -> RecordList:
            return await client.ask(GetRecords(request=client.next_request(), job="a", since=since), RecordList)

        assert not (await ask(0)).finished
        await client.ask(Cancel(request=client.next_request(), job="a"), Changed)
        whole = await ask(0)
        assert whole.finished
        assert [each.seq for each in whole.records] == list(range(len(whole.records)))
        assert whole.records[-1].body == JobState(state="cancelled", reason="by request")
        rest = await ask(len(whole.records) - 1)
        assert (rest.records, rest.finished) == (whole.records[-1:], True)


async def test_status_and_queue_of_an_idle_cluster(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        status = (await client.ask(GetStatus(request=client.next_request()), StatusReply)).status
        assert (status.epoch, status.nodes, status.job, status.problems) == (1, (), None, ())
        assert 0 <= status.uptime_s < 60
        queue = (await client.ask(GetQueue(request=client.next_request()), QueueReply)).queue
        assert queue.items == ()


async def test_jobs_survive_a_restart_and_move_to_a_new_segment_when_all_are_over(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="a")
        await client.submit(job_config(), job="b")
        await client.ask(Cancel(request=client.next_request(), job="a"), Changed)
    async with running(node) as run, client_of(node) as client:
        assert (run.journal.epoch, run.journal.segment) == (2, 1)
        assert list(await jobs(client)) == ["a", "b"]
        assert (await jobs(client))["a"] == "cancelled"
        await client.ask(Cancel(request=client.next_request(), job="b"), Changed)
    async with running(node) as run, client_of(node) as client:
        assert (run.journal.epoch, run.journal.segment) == (3, 2)
        assert await jobs(client) == {"a": "cancelled", "b": "cancelled"}
        detail = (await client.ask(ShowJob(request=client.next_request(), job="a"), JobReply)).job
        assert detail.job.state == "cancelled"
        assert detail.num_records > 0
        assert not (await client.submit(job_config(), job="a")).created
        assert (await client.submit(job_config())).job == "job-001"


def hostile(sound: Submit) -> list[tuple[Submit, ExitCode, str]]:
    """What clients may send by mistake or on purpose, the code and words that answer it."""

    def of(table: str, key: str, value: object) -> str:
        config = json.loads(sound.config)
        config[table][key] = value
        return json.dumps(config)

    return [
        (replace(sound, config="[" * 100_000), ExitCode.USAGE, "did not arrive as JSON"),
        (replace(sound, config=of("training", "unknown", None)), ExitCode.BAD_CONFIG, "training.unknown: unknown key"),
        (replace(sound, config=of("checkpoint", "every", 10**20)), ExitCode.BAD_CONFIG, "checkpoint.every = 1000"),
        (replace(sound, config=of("data", "samples_per_prompt", 10**12)), ExitCode.BAD_CONFIG, "samples_per_prompt"),
        (replace(sound, config=of("schedule", "strategy", "static:" + "9" * 5000)), ExitCode.BAD_CONFIG, "strategy"),
        (replace(sound, config=of("schedule", "lease_s", 1e300)), ExitCode.BAD_CONFIG, "lease_s"),
        (replace(sound, job="a\n"), ExitCode.USAGE, "job id"),
        (replace(sound, priority=1001), ExitCode.USAGE, "priority 1001"),
        (replace(sound, user="ann\x1b[2J"), ExitCode.USAGE, "user 'ann\\x1b[2J': no control characters"),
    ]


async def test_no_submit_ends_the_driver(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        sound = await client.submission(job_config(), job="mine")
        for message, code, words in hostile(sound):
            assert words in await refused(client, replace(message, request=client.next_request()), code)
        assert await jobs(client) == {}
        assert (await client.ask(sound, Submitted)).created


async def test_a_spec_that_raises_is_no_end_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules and options of others are code of others."""

    def rules(options: object, config: object) -> Any:
        raise ZeroDivisionError("in a plug-in")

    broken = replace(plugins.algorithm_spec("flow_grpo"), rules=rules)
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        sound = await client.submission(job_config(), job="mine")
        with monkeypatch.context() as patched:
            patched.setattr(plugins, "algorithm_spec", lambda name: broken)
            why = await refused(client, sound, ExitCode.TARGET_FAILED)
        assert "ZeroDivisionError: in a plug-in" in why
        assert (await client.ask(replace(sound, request=client.next_request()), Submitted)).created


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
async def test_numbers_that_no_table_has_are_refused(tmp_path: Path, number: int) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="mine")
        for message in (
            GetRecords(request="r", job="mine", since=number),
            GetStory(request="r", subject="mine", cursor=StoryCursor(record=number)),
        ):
            async with client_of(node) as hostile_client:
                await hostile_client.link.connected()
                assert hostile_client.link.send(message)
                told = await anext(hostile_client.link.messages())
                assert isinstance(told, WireRefused)
                assert "less than or equal to" in told.reason
        assert list(await jobs(client)) == ["mine"]


async def test_a_reason_draws_nothing_on_the_terminals_of_others(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with running(node), client_of(node) as client:
        await client.submit(job_config(), job="mine")
        for why in ("\x1b[2J", "a\nb", "\x9b2J"):
            pause = Pause(request=client.next_request(), job="mine", by="ann", why=why)
            assert "no control characters" in await refused(client, pause, ExitCode.USAGE)
        for asked in (Pause(request="r", job="mine", why="x" * 1001), Drain(request="r", target="n", why="x" * 1001)):
            assert "why 'xxxx" in (said := await refused(client, asked, ExitCode.USAGE))
            assert "1,001 characters, and at most 1,000" in said
        assert await jobs(client) == {"mine": "queued"}
