"""HELLO, WELCOME, silence, refusal, driver restarts; real processes, real sockets."""

import asyncio

from digend.wire.protocol import Refused
from digend.wire.workers import HeldLease, Hello, ResultAck, Revoke, TaskDone, TaskFailed
from tests.worker import tasks
from tests.worker.scripted import Cluster, ScriptedDriver, driver_at, ended

GENERATOR, TRAINER = "n/generator/0", "n/trainer/0"


async def test_hello_says_who_it_is(cluster: Cluster, driver: ScriptedDriver) -> None:
    process = await cluster.start("generator")
    hello, session = await driver.join(GENERATOR)
    assert (hello.role, hello.name, hello.node, hello.device) == ("generator", GENERATOR, "n", "fake")
    assert hello.pid == process.pid
    assert len(hello.instance) == 32
    assert hello.data.startswith("ipc://")
    assert "torch" in hello.versions.numbers
    assert not hello.held
    assert not hello.prepared
    beat = await driver.beat(session, None)
    assert beat.resident_bytes > 1_000_000


async def test_waits_for_a_driver_that_comes_late(cluster: Cluster) -> None:
    process = await cluster.start("generator")
    await asyncio.sleep(1.5)
    async with driver_at(cluster.address) as driver:
        hello, session = await driver.join(GENERATOR)
        assert hello.pid == process.pid
        await driver.beat(session, None)


async def test_hello_is_repeated_until_answered(cluster: Cluster, driver: ScriptedDriver) -> None:
    await cluster.start("generator")
    first = await driver.expect(Hello)
    second = await driver.expect(Hello)
    assert first.instance == second.instance


async def test_work_survives_a_driver_restart(cluster: Cluster) -> None:
    """The trainer has applied 0, finished 1 without an acknowledgement, and is in nothing; then a lease runs on."""
    process = await cluster.start("trainer")
    async with driver_at(cluster.address) as driver:
        hello, session = await driver.join(TRAINER)
        for lease, task in (("a", tasks.prepare()), ("b", tasks.update(0))):
            driver.assign(TRAINER, session, lease, task)
            assert (await driver.expect(TaskDone)).lease == lease
            driver.send(TRAINER, ResultAck(session=session, lease=lease))
        driver.assign(TRAINER, session, "c", tasks.update(1))
        await driver.expect(TaskDone)
        driver.assign(TRAINER, session, "d", tasks.generate(0, ticks=1000))
        await driver.beat(session, "d", done=1)
    async with driver_at(cluster.address) as driver:
        again, session = await driver.join(TRAINER)
        assert again.instance == hello.instance
        assert again.pid == process.pid
        assert again.held == (HeldLease(lease="d", done=False), HeldLease(lease="c", done=True))
        assert [(job.job, job.applied) for job in again.prepared] == [("j", (0, 1))]
        assert (await driver.expect(TaskDone, session)).lease == "c"
        driver.send(TRAINER, ResultAck(session=session, lease="c"))
        driver.send(TRAINER, Revoke(session=session, lease="d", reason="enough"))
        assert (await driver.expect(TaskFailed, session)).lease == "d"


async def test_unknown_session_means_hello_again(cluster: Cluster, driver: ScriptedDriver) -> None:
    await cluster.start("generator")
    _, session = await driver.join(GENERATOR)
    await driver.beat(session, None)
    driver.send(GENERATOR, Refused(reason="unknown session"))
    _, other = await driver.join(GENERATOR)
    await driver.beat(other, None)


async def test_messages_of_an_older_session_are_not_for_it(cluster: Cluster, driver: ScriptedDriver) -> None:
    await cluster.start("generator")
    _, old = await driver.join(GENERATOR)
    await driver.beat(old, None)
    new = driver.welcome(GENERATOR)
    driver.assign(GENERATOR, old, "old", tasks.prepare())
    driver.assign(GENERATOR, new, "new", tasks.prepare())
    done = await driver.expect(TaskDone)
    assert (done.lease, done.session) == ("new", new)


async def test_silence_means_hello_again(cluster: Cluster, driver: ScriptedDriver) -> None:
    await cluster.start("generator", timing={"lost_s": 0.4})
    hello, session = await driver.join(GENERATOR)
    await driver.beat(session, None)
    driver.deaf = True
    again = await driver.expect(Hello)
    assert again.instance == hello.instance


async def test_a_refusal_right_after_the_welcome_ends_it_too(cluster: Cluster, driver: ScriptedDriver) -> None:
    """As the core refuses: the two arrive together, often before whoever waits for the welcome has run."""
    processes = [await cluster.start(role) for role in ("generator", "trainer", "reward")]
    while len(driver.peers) < len(processes):
        before = set(driver.peers)
        hello = await driver.expect(Hello)
        if hello.name not in before:
            driver.welcome(hello.name)
            driver.send(hello.name, Refused(reason="diffusers 1 there, diffusers 2 here", fatal=True))
    assert [(await ended(process))[0] for process in processes] == [78, 78, 78]


async def test_fatal_refusal_ends_with_78(cluster: Cluster, driver: ScriptedDriver) -> None:
    process = await cluster.start("generator")
    await driver.expect(Hello)
    driver.send(GENERATOR, Refused(reason="torch 2.9 there, torch 2.8 here", fatal=True))
    code, log = await ended(process)
    assert code == 78
    assert "torch 2.8 here" in log


async def test_engine_that_cannot_start(cluster: Cluster) -> None:
    refused = await cluster.start("generator", "refused")
    broken = await cluster.start("reward", "broken")
    code, log = await ended(refused)
    assert code == 78
    assert "torch sees 0 GPUs" in log
    code, log = await ended(broken)
    assert code == 1
    assert "a library is damaged" in log
    assert not list((cluster.folder / "state" / "blobs").glob("*.sock"))
