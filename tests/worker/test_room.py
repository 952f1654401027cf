"""Tensors that have no room in a worker's memory: on its disk, told with each heartbeat, gone with the process."""

from digend.wire.workers import Heartbeat, Hello, ResultAck, TaskDone
from tests.worker import tasks
from tests.worker.scripted import Cluster, ScriptedDriver, ended


def _spooled(cluster: Cluster) -> list[str]:
    return [
        path.name for path in (cluster.folder / "state" / "spool").rglob("*") if path.name != "lock" and path.is_file()
    ]


async def _beat_after_a_commit(cluster: Cluster, driver: ScriptedDriver, blobs: str) -> Heartbeat:
    with cluster.node.open("a", encoding="utf-8") as file:
        file.write(blobs)
    process = await cluster.start("trainer")
    hello, session = await driver.join("n/trainer/0")
    assert isinstance(hello, Hello)
    driver.assign("n/trainer/0", session, "a", tasks.commit(version=0))
    await driver.expect(TaskDone, session)
    driver.send("n/trainer/0", ResultAck(session=session, lease="a"))
    beat = await driver.beat(session, None)
    while not beat.held_bytes:
        beat = await driver.beat(session, None, seq=beat.seq + 1)
    assert (len(_spooled(cluster)) > 0) == (beat.spooled_bytes > 0)
    process.terminate()
    await ended(process)
    assert _spooled(cluster) == []
    return beat


async def test_what_has_no_room_in_memory_is_spooled(cluster: Cluster, driver: ScriptedDriver) -> None:
    beat = await _beat_after_a_commit(cluster, driver, "[blobs]\nmemory_gib = 1e-9\nspool_gib = 0.01\n")
    assert beat.spooled_bytes == beat.held_bytes > 0
    assert (beat.full, beat.problem) == (False, "")
    assert (beat.memory_limit_bytes, beat.spool_limit_bytes) == (1, int(0.01 * 2**30))


async def test_without_a_spool_it_says_that_it_is_full(cluster: Cluster, driver: ScriptedDriver) -> None:
    beat = await _beat_after_a_commit(cluster, driver, "[blobs]\nmemory_gib = 1e-9\n")
    assert beat.spooled_bytes == 0
    assert beat.full
    assert "blobs.memory_gib" in beat.problem


async def test_there_is_no_limit_without_one(cluster: Cluster, driver: ScriptedDriver) -> None:
    beat = await _beat_after_a_commit(cluster, driver, "")
    assert (beat.spooled_bytes, beat.full) == (0, False)
    assert (beat.memory_limit_bytes, beat.spool_limit_bytes) == (None, 0)
