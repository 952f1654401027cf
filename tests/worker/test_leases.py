"""The table of leases, without a process."""

from daemons.worker.leases import Leases, Outcome
from digend.wire.tasks import Receipt, ResetResult, TaskError
from digend.wire.workers import HeldLease, TaskDone, TaskFailed
from tests.worker import tasks

RECEIPT = Receipt(total_ns=1, stages=())


def done(lease: str) -> Outcome:
    return Outcome(lease=lease, answer=ResetResult(), receipt=RECEIPT)


def test_a_lease_waits_runs_is_done_and_is_forgotten() -> None:
    leases = Leases()
    assert leases.offer("a", tasks.update(0))
    assert leases.inventory() == (HeldLease(lease="a", done=False),)
    assert leases.start() is not None
    assert not leases.offer("a", tasks.update(0))
    assert leases.inventory() == (HeldLease(lease="a", done=False),)
    leases.finish(done("a"))
    assert leases.idle
    assert not leases.offer("a", tasks.update(0))
    assert leases.inventory() == (HeldLease(lease="a", done=True),)
    leases.forget("a")
    assert leases.inventory() == ()
    assert leases.start() is None


def test_the_end_of_a_job_drops_what_waits_and_keeps_results() -> None:
    leases = Leases()
    leases.finish(done("a"))
    leases.finish(done("b"))
    leases.offer("c", tasks.update(0, job="j"))
    leases.offer("d", tasks.update(0, job="k"))
    leases.end("j")
    assert [held.lease for held in leases.inventory()] == ["d", "a", "b"]


def test_an_outcome_is_told_to_any_session() -> None:
    error = TaskError(reason="internal", message="m", retry=True)
    failed = Outcome(lease="a", answer=error, receipt=RECEIPT)
    assert failed.message("s1") == TaskFailed(session="s1", lease="a", error=error, receipt=RECEIPT)
    assert done("a").message("s2") == TaskDone(session="s2", lease="a", result=ResetResult(), receipt=RECEIPT)
