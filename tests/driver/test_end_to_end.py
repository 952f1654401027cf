"""A whole job over real sockets: driver, fake workers, fake recorder, a client."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from broker.core import Core
from daemons.driver.journal import Journal
from daemons.driver.replay import verify
from digend.wire.pages import GetRecords, RecordList
from digend.wire.records import StepRecord
from digend.wire.replies import JobReply, StatusReply
from digend.wire.requests import GetStatus, ShowJob
from digend.wire.workers import EndJob
from tests.driver.fakes import FakeRecorder, FakeWorker, living
from tests.driver.world import Client, client_of, job_config, journal_path, node_of, running


async def finished(client: Client, job: str, state: str = "completed") -> JobReply:
    """Asks until the job is over."""
    async with asyncio.timeout(30):
        while True:
            reply = await client.ask(ShowJob(request=client.next_request(), job=job), JobReply)
            if reply.job.job.state in ("completed", "failed", "cancelled"):
                assert reply.job.job.state == state, reply.job.job.reason
                return reply
            await asyncio.sleep(0.02)


async def test_a_job_of_three_global_steps_runs_to_completed(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(running(node))
        generator = await stack.enter_async_context(living(FakeWorker(node, "generator", "n/generator/0")))
        trainer = await stack.enter_async_context(living(FakeWorker(node, "trainer", "n/trainer")))
        recorder = await stack.enter_async_context(living(FakeRecorder(node)))
        client = await stack.enter_async_context(client_of(node))
        submitted = await client.submit(job_config())
        assert (submitted.job, submitted.created, submitted.position) == ("job-001", True, 0)

        detail = (await finished(client, "job-001")).job
        assert (detail.job.global_step, detail.job.policy_version) == (3, 3)
        assert detail.pipeline == "/pipeline"
        assert {"encode", "generate", "score"} <= set(generator.tasks)
        assert {"prepare", "update", "commit", "checkpoint"} <= set(trainer.tasks)
        assert [each.label for each in detail.evaluations] == ["before", "during", "after"]

        status = (await client.ask(GetStatus(request=client.next_request()), StatusReply)).status
        assert {each.name for each in status.nodes} == {"n/generator/0", "n/trainer", "n/recorder"}
        assert status.epoch == 1

        await recorder.when(lambda: len(recorder.records.get("job-001", [])) >= detail.num_records)
        streamed = recorder.records["job-001"]
        assert [each.seq for each in streamed] == list(range(detail.num_records))
        assert sum(isinstance(each.body, StepRecord) for each in streamed) == 3
        assert recorder.configs == {"job-001": "name = 'job'\n"}

        asked = await client.ask(GetRecords(request=client.next_request(), job="job-001", since=0), RecordList)
        assert list(asked.records) == streamed[: len(asked.records)]
        for worker in (generator, trainer):
            await worker.until(EndJob)
            assert not worker.unacknowledged
        assert run.journal.epoch == 1

    journal = Journal(journal_path(node), read_only=True)
    count, divergence = verify(Core(), journal.batches())
    journal.close()
    assert divergence is None
    assert count > 20
