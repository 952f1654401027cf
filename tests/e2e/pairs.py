"""What was trained, pair by pair: the journal of a job with `keep_pairs`, read by replaying it."""

from pathlib import Path

from broker.core import Core
from broker.events import TaskFinished
from daemons.driver.journal import Journal
from digend.wire.tasks import UpdateResult, UpdateTask

PairKey = tuple[int, str, int, int]
"""(open global step, prompt, sample, timestep)"""


def trained_pairs(path: Path, job: str) -> dict[PairKey, float]:
    """Loss of every pair of a job; a pair that counted twice is an error."""
    found: dict[PairKey, float] = {}
    journal = Journal(path, read_only=True)
    try:
        for segment, _ in journal.segments():
            core = Core()
            for batch in journal.batches(segment):
                for event in batch.events:
                    if isinstance(event, TaskFinished) and isinstance(event.result, UpdateResult):
                        _add(found, core, job, event.lease, event.result)
                core.step(batch.now_ns, batch.events)
    finally:
        journal.close()
    return found


def _add(found: dict[PairKey, float], core: Core, job: str, lease_id: str, result: UpdateResult) -> None:
    lease = core.state.leases.get(lease_id)
    if lease is None or lease.job != job:
        return
    assert isinstance(lease.task, UpdateTask)
    for prompt, sample, timestep, loss in result.pairs:
        key = (lease.task.global_step, prompt, sample, timestep)
        assert key not in found, f"{key} was trained twice"
        found[key] = loss
