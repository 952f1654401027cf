"""Versions: staged in the background, checked, swapped in between two tasks; tensors between two processes."""

from dataclasses import replace

import pytest

from digend.wire.protocol import Refused
from digend.wire.refs import WeightsRef
from digend.wire.tasks import CommitResult, EncodeResult, GenerateResult, ResultBody, ScoreResult, TaskBody
from digend.wire.workers import FreeBlobs, Hello, ResultAck, Retire, Stage, Staged, StageFailed, TaskDone, TaskFailed
from tests.worker import tasks
from tests.worker.scripted import Cluster, ScriptedDriver

TRAINER, GENERATOR, REWARD = "n/trainer/0", "n/generator/0", "n/reward/0"


async def start(cluster: Cluster, driver: ScriptedDriver, role: str) -> str:
    await cluster.start(role)
    return (await driver.join(f"n/{role}/0"))[1]


async def result(driver: ScriptedDriver, name: str, session: str, lease: str, task: TaskBody) -> ResultBody:
    """The task's result, acknowledged."""
    driver.assign(name, session, lease, task)
    done = await driver.expect(TaskDone, session)
    assert done.lease == lease
    driver.send(name, ResultAck(session=session, lease=lease))
    return done.result


async def published(driver: ScriptedDriver, session: str, version: int = 0) -> WeightsRef:
    committed = await result(driver, TRAINER, session, f"commit{version}", tasks.commit(version=version))
    assert isinstance(committed, CommitResult)
    assert committed.weights is not None
    return committed.weights


async def pixel(driver: ScriptedDriver, worker: str, reward: str, lease: str, version: int) -> float | None:
    """Version that a sample was generated under, as the reward process reads it out of the pulled pixels."""
    made = await result(driver, GENERATOR, worker, lease, tasks.generate(version))
    assert isinstance(made, GenerateResult)
    scored = await result(driver, REWARD, reward, f"s{lease}", tasks.score(made.samples))
    assert isinstance(scored, ScoreResult)
    return scored.scores[0].reward


async def test_staged_swapped_and_scored_elsewhere(cluster: Cluster, driver: ScriptedDriver) -> None:
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    reward = await start(cluster, driver, "reward")
    for version in range(2):
        weights = await published(driver, trainer, version)
        driver.send(GENERATOR, Stage(session=generator, weights=weights))
        staged = await driver.expect(Staged)
        assert (staged.version, staged.num_bound) == (version + 1, 3)
    assert await pixel(driver, generator, reward, "a", 1) == 1.0
    assert await pixel(driver, generator, reward, "b", 2) == 2.0
    assert await pixel(driver, generator, reward, "c", 1) == 1.0, "an older version that is not retired"


async def test_swap_is_in_the_receipt_once(cluster: Cluster, driver: ScriptedDriver) -> None:
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    driver.send(GENERATOR, Stage(session=generator, weights=await published(driver, trainer)))
    await driver.expect(Staged)
    stages = []
    for lease in "ab":
        driver.assign(GENERATOR, generator, lease, tasks.generate(1))
        stages.append([name for name, _ in (await driver.expect(TaskDone)).receipt.stages])
    assert stages == [["swap", "generate"], ["generate"]]


async def test_version_that_is_not_staged(cluster: Cluster, driver: ScriptedDriver) -> None:
    generator = await start(cluster, driver, "generator")
    driver.assign(GENERATOR, generator, "a", tasks.generate(7))
    failed = await driver.expect(TaskFailed)
    assert failed.error.reason == "weights"
    assert "version 7" in failed.error.message


async def test_retired_version_is_gone(cluster: Cluster, driver: ScriptedDriver) -> None:
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    for version in range(2):
        driver.send(GENERATOR, Stage(session=generator, weights=await published(driver, trainer, version)))
        await driver.expect(Staged)
    await result(driver, GENERATOR, generator, "p", tasks.prepare())
    driver.send(GENERATOR, Retire(session=generator, job="j", incarnation=0, oldest_version=2))
    driver.send(GENERATOR, Refused(reason="unknown session"))
    hello, generator = await driver.join(GENERATOR)
    assert hello.prepared[0].staged == (2,)
    driver.assign(GENERATOR, generator, "a", tasks.generate(1))
    assert (await driver.expect(TaskFailed)).error.reason == "weights"


async def test_new_session_hears_of_staged_versions(cluster: Cluster, driver: ScriptedDriver) -> None:
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    weights = await published(driver, trainer)
    driver.send(GENERATOR, Stage(session=generator, weights=weights))
    await driver.expect(Staged)
    driver.send(GENERATOR, Refused(reason="unknown session"))
    _, generator = await driver.join(GENERATOR)
    assert (await driver.expect(Staged, generator)).version == 1
    driver.send(GENERATOR, Stage(session=generator, weights=weights))
    assert (await driver.expect(Staged, generator)).version == 1


@pytest.mark.parametrize("change", ["num_tensors", "digest", "num_bytes"])
async def test_weights_that_are_not_as_published(cluster: Cluster, driver: ScriptedDriver, change: str) -> None:
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    weights = await published(driver, trainer)
    if change == "num_tensors":
        weights = replace(weights, num_tensors=4)
    elif change == "digest":
        weights = replace(weights, blob=replace(weights.blob, digest="0" * 32))
    else:
        weights = replace(weights, blob=replace(weights.blob, num_bytes=2))
    driver.send(GENERATOR, Stage(session=generator, weights=weights))
    failed = await driver.expect(StageFailed)
    assert (failed.error.reason, failed.version) == ("weights", 1)
    driver.assign(GENERATOR, generator, "a", tasks.generate(1))
    assert (await driver.expect(TaskFailed)).error.reason == "weights"


async def test_weights_without_one_tensor(cluster: Cluster, driver: ScriptedDriver) -> None:
    """A blob whose digests are right, but which lacks what the module needs, is refused by name."""
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    encoded = await result(driver, TRAINER, trainer, "e", tasks.encode())
    assert isinstance(encoded, EncodeResult)
    weights = WeightsRef(blob=encoded.conditions["p0"], job="j", incarnation=0, version=3, num_tensors=1, form="full")
    driver.send(GENERATOR, Stage(session=generator, weights=weights))
    failed = await driver.expect(StageFailed)
    assert failed.error.reason == "weights"
    assert "net/a" in failed.error.message


async def test_weights_that_were_freed(cluster: Cluster, driver: ScriptedDriver) -> None:
    """Tried again for a while, then reported as lost: not an error of the weights."""
    trainer = await start(cluster, driver, "trainer")
    generator = await start(cluster, driver, "generator")
    weights = await published(driver, trainer)
    driver.send(TRAINER, FreeBlobs(session=trainer, blobs=(weights.blob.id,)))
    await result(driver, TRAINER, trainer, "later", tasks.generate(0))  # what was sent before has been read
    driver.send(GENERATOR, Stage(session=generator, weights=weights))
    assert (await driver.expect(StageFailed)).error.reason == "blob_lost"


async def test_own_blobs_need_no_socket(cluster: Cluster, driver: ScriptedDriver) -> None:
    """The reference names an address where nobody listens; the maker reads its own memory, and misses what it freed."""
    trainer = await start(cluster, driver, "trainer")
    made = await result(driver, TRAINER, trainer, "a", tasks.generate(0))
    assert isinstance(made, GenerateResult)
    nowhere = replace(made.samples, owner=f"ipc://{cluster.folder}/nobody.sock")
    scored = await result(driver, TRAINER, trainer, "b", tasks.score(nowhere))
    assert isinstance(scored, ScoreResult)
    driver.send(TRAINER, FreeBlobs(session=trainer, blobs=(made.samples.id,)))
    driver.assign(TRAINER, trainer, "c", tasks.score(nowhere))
    assert (await driver.expect(TaskFailed)).error.reason == "blob_lost"
    assert not driver.has(Hello)
