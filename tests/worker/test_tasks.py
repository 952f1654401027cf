"""Tasks: progress, results kept until acknowledged, revocation, faults, eviction, drain."""

import asyncio
import os
import signal
from time import monotonic

import pytest

from digend.net.blobs import BlobClient, BlobLost
from digend.wire.protocol import Refused
from digend.wire.refs import BlobRef
from digend.wire.tasks import GenerateResult
from digend.wire.workers import EndJob, Goodbye, Hello, ResultAck, Revoke, TaskDone, TaskFailed
from tests.worker import tasks
from tests.worker.fake_engine import FAULT, HUGE, OUT_OF_MEMORY, RAISE, WEDGE
from tests.worker.scripted import TIMEOUT_S, Cluster, ScriptedDriver, ended, terminate

TRAINER = "n/trainer/0"
LONG = 10_000
"""Ticks of a task that does not end by itself within a test."""


async def joined(cluster: Cluster, driver: ScriptedDriver, **timing: float) -> tuple[asyncio.subprocess.Process, str]:
    process = await cluster.start("trainer", timing=timing)
    _, session = await driver.join(TRAINER)
    return process, session


async def test_progress_then_result_with_receipt(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=20))
    beat = await driver.beat(session, "a", done=2)
    assert beat.total == 20
    done = await driver.expect(TaskDone)
    assert isinstance(done.result, GenerateResult)
    assert done.receipt.num_samples == 1
    stages = dict(done.receipt.stages)
    assert 20 * 20_000_000 <= stages["generate"] <= done.receipt.total_ns
    await driver.beat(session, None, done=0)


async def test_result_is_told_again_until_acknowledged(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver, resend_s=0.2)
    driver.assign(TRAINER, session, "a", tasks.update(0))
    assert (await driver.expect(TaskDone)).lease == "a"
    assert (await driver.expect(TaskDone)).lease == "a"
    driver.send(TRAINER, Refused(reason="unknown session"))
    hello, session = await driver.join(TRAINER)
    assert [(held.lease, held.done) for held in hello.held] == [("a", True)]
    assert (await driver.expect(TaskDone, session)).lease == "a"
    driver.send(TRAINER, ResultAck(session=session, lease="a"))
    driver.send(TRAINER, Refused(reason="unknown session"))
    hello, session = await driver.join(TRAINER)
    assert hello.held == ()


async def test_assignment_that_comes_twice_is_worked_once(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "p", tasks.prepare())
    for _ in range(2):
        driver.assign(TRAINER, session, "a", tasks.update(4))
    await driver.expect(TaskDone)
    await driver.expect(TaskDone)
    driver.send(TRAINER, Refused(reason="unknown session"))
    hello, _ = await driver.join(TRAINER)
    assert hello.prepared[0].applied == (4,)


async def test_tasks_that_come_together_wait_in_line(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    for lease in "abc":
        driver.assign(TRAINER, session, lease, tasks.generate(0, ticks=3))
    assert [(await driver.expect(TaskDone)).lease for _ in "abc"] == ["a", "b", "c"]


async def test_revoked_while_running(cluster: Cluster, driver: ScriptedDriver) -> None:
    """It stops at its next progress report, and what it served is gone."""
    process = await cluster.start("trainer")
    hello, session = await driver.join(TRAINER)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=LONG))
    driver.assign(TRAINER, session, "b", tasks.update(0))
    await driver.beat(session, "a", done=1)
    driver.send(TRAINER, Revoke(session=session, lease="a", reason="the job was cancelled"))
    failed = await driver.expect(TaskFailed)
    assert (failed.lease, failed.error.reason) == ("a", "cancelled")
    assert "the job was cancelled" in failed.error.message
    assert (await driver.expect(TaskDone)).lease == "b"
    first = BlobRef(owner=hello.data, instance=hello.instance, id=f"{hello.instance}-0", num_bytes=1, digest="")
    client = BlobClient()
    with pytest.raises(BlobLost, match="does not hold it"):
        await client.pull(first)
    client.close()
    assert process.returncode is None


async def test_revoked_while_waiting(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=LONG))
    driver.assign(TRAINER, session, "b", tasks.update(0))
    driver.send(TRAINER, Revoke(session=session, lease="b", reason="not needed"))
    failed = await driver.expect(TaskFailed)
    assert (failed.lease, failed.error.reason, failed.receipt.total_ns) == ("b", "cancelled", 0)


async def test_revoked_while_waiting_for_tensors(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    nobody = f"ipc://{cluster.folder}/nobody.sock"
    silent = BlobRef(owner=nobody, instance="other", id="other-0", num_bytes=1, digest="")
    driver.assign(TRAINER, session, "a", tasks.generate(0, condition=silent))
    await driver.beat(session, "a")
    begun = monotonic()
    driver.send(TRAINER, Revoke(session=session, lease="a", reason="not needed"))
    assert (await driver.expect(TaskFailed)).error.reason == "cancelled"
    assert monotonic() - begun < 5.0


@pytest.mark.parametrize(
    ("z0", "reason", "text"),
    [
        (RAISE, "internal", "RuntimeError: shapes do not match"),
        (OUT_OF_MEMORY, "out_of_memory", "a very large tensor"),
        (FAULT, "non_finite", "loss at timestep 3 is nan"),
    ],
)
async def test_faults_have_a_reason(cluster: Cluster, driver: ScriptedDriver, z0: int, reason: str, text: str) -> None:
    """And the process goes on."""
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.update(0, z0=z0))
    failed = await driver.expect(TaskFailed)
    assert failed.error.reason == reason
    assert text in failed.error.message
    driver.assign(TRAINER, session, "b", tasks.update(1))
    assert (await driver.expect(TaskDone)).lease == "b"


async def test_result_over_the_size_limit_fails_its_task(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.update(0, z0=HUGE))
    failed = await driver.expect(TaskFailed)
    assert "too large" in failed.error.message
    assert not failed.error.retry
    driver.assign(TRAINER, session, "b", tasks.update(1))
    assert (await driver.expect(TaskDone)).lease == "b"


async def test_end_of_a_job_unloads_it(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "p", tasks.prepare("j"))
    driver.assign(TRAINER, session, "q", tasks.prepare("k"))
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=LONG, job="j"))
    await driver.beat(session, "a", done=1)
    driver.send(TRAINER, EndJob(session=session, job="j"))
    await driver.beat(session, None)
    driver.send(TRAINER, Refused(reason="unknown session"))
    hello, _ = await driver.join(TRAINER)
    assert [job.job for job in hello.prepared] == ["k"]
    assert [held.lease for held in hello.held] == ["p", "q"]
    assert not driver.has(TaskFailed)


async def test_evicted_worker_gives_its_task_up(cluster: Cluster, driver: ScriptedDriver) -> None:
    process, session = await joined(cluster, driver, stuck_s=0.5)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=LONG))
    await driver.beat(session, "a", done=1)
    driver.send(TRAINER, Refused(reason="evicted: no heartbeat for 15.0 s"))
    _, session = await driver.join(TRAINER)
    driver.assign(TRAINER, session, "b", tasks.generate(0, ticks=50))
    assert (await driver.expect(TaskDone, session)).lease == "b"
    assert process.returncode is None


async def test_evicted_and_stuck_ends_the_process(cluster: Cluster, driver: ScriptedDriver) -> None:
    process, session = await joined(cluster, driver, stuck_s=0.5)
    driver.assign(TRAINER, session, "a", tasks.update(0, z0=WEDGE))
    await driver.beat(session, "a")
    driver.send(TRAINER, Refused(reason="evicted: update made no progress for 60 s"))
    code, log = await ended(process)
    assert code == 1
    assert "stuck" in log
    assert not driver.has(Hello), "it greeted, to be given tasks that it could not begin"


async def test_drain_finishes_the_task(cluster: Cluster, driver: ScriptedDriver) -> None:
    process, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=40))
    driver.assign(TRAINER, session, "b", tasks.update(0))
    await driver.beat(session, "a", done=1)
    terminate(process)
    assert (await driver.expect(TaskDone)).lease == "a"
    driver.assign(TRAINER, session, "c", tasks.update(1))
    assert not driver.has(Goodbye)
    driver.send(TRAINER, ResultAck(session=session, lease="a"))
    assert (await driver.expect(Goodbye)).session == session
    code, _ = await ended(process)
    assert code == 42
    assert not driver.has(TaskDone)


async def test_drain_is_bounded(cluster: Cluster, driver: ScriptedDriver) -> None:
    process, session = await joined(cluster, driver, drain_s=0.3, acknowledge_s=0.3)
    driver.assign(TRAINER, session, "a", tasks.generate(0, ticks=LONG))
    await driver.beat(session, "a", done=1)
    terminate(process)
    assert (await driver.expect(TaskFailed)).error.reason == "cancelled"
    await driver.expect(Goodbye)
    assert (await ended(process))[0] == 42


async def test_second_signal_ends_at_once(cluster: Cluster, driver: ScriptedDriver) -> None:
    process, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.update(0, z0=WEDGE))
    await driver.beat(session, "a")
    terminate(process)
    await asyncio.sleep(0.3)
    assert process.returncode is None
    os.kill(process.pid, signal.SIGINT)
    assert (await ended(process))[0] == 42


async def test_stops_without_a_driver(cluster: Cluster) -> None:
    process = await cluster.start("trainer")
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT_S):
        await process.stderr.readuntil(b"waiting for the driver")
    terminate(process)
    assert (await ended(process))[0] == 42


async def test_heartbeats_go_on_while_the_engine_is_wedged(cluster: Cluster, driver: ScriptedDriver) -> None:
    _, session = await joined(cluster, driver)
    driver.assign(TRAINER, session, "a", tasks.update(0, z0=WEDGE))
    first = await driver.beat(session, "a")
    await driver.beat(session, "a", seq=first.seq + 5)
    assert {beat.lease for beat in driver.beats[-5:]} == {"a"}
    assert not driver.has(Hello)
