"""The leases in a worker's hands: waiting, running, done. Owns results until they are acknowledged.

Knows nothing of sockets, engines or time. Invariant: a lease is in exactly one of the three, and a result leaves only
by `forget`.
"""

from dataclasses import dataclass

from digend.wire.tasks import Receipt, ResultBody, TaskBody, TaskError
from digend.wire.workers import HeldLease, TaskDone, TaskFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a lease ended: a result, or the error it failed with."""

    lease: str
    answer: ResultBody | TaskError
    receipt: Receipt

    def message(self, session: str) -> TaskDone | TaskFailed:
        """The same outcome can be told to one session after another."""
        if isinstance(self.answer, TaskError):
            return TaskFailed(session=session, lease=self.lease, error=self.answer, receipt=self.receipt)
        return TaskDone(session=session, lease=self.lease, result=self.answer, receipt=self.receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lease and its task."""

    lease: str
    task: TaskBody


class Leases:
    """Used from the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, Held] = {}
        self._outcomes: dict[str, Outcome] = {}
        self.running: Held | None = None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Results that no driver has acknowledged, oldest first."""
        return tuple(self._outcomes.values())

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self.running is None and not self._waiting

    def offer(self, lease: str, task: TaskBody) -> bool:
        """Takes a lease on; False where it is held already (an assignment that came twice)."""
        if lease in self._waiting or lease in self._outcomes or (self.running and self.running.lease == lease):
            return False
        self._waiting[lease] = Held(lease=lease, task=task)
        return True

    def start(self) -> Held | None:
        """The oldest waiting lease becomes the running one; None where nothing waits."""
        if not self._waiting:
            return None
        lease = next(iter(self._waiting))
        self.running = self._waiting.pop(lease)
        return self.running

    def withdraw(self, lease: str) -> Held | None:
        """A waiting lease is given back unworked; None where it does not wait."""
        return self._waiting.pop(lease, None)

    def outcome(self, lease: str) -> Outcome | None:
        return self._outcomes.get(lease)

    def clear_waiting(self) -> None:
        """None of the leases not yet begun will be."""
        self._waiting.clear()

    def finish(self, outcome: Outcome) -> None:
        """The running lease (or a withdrawn one) ended; its outcome is kept."""
        if self.running and self.running.lease == outcome.lease:
            self.running = None
        self._outcomes[outcome.lease] = outcome

    def discard(self) -> None:
        """The running lease ended and nobody wants to know how."""
        self.running = None

    def forget(self, lease: str) -> None:
        """A result was acknowledged."""
        self._outcomes.pop(lease, None)

    def end(self, job: str) -> None:
        """The job is over: what waits is dropped. A running lease goes on until it stops, and results are told until
        they are acknowledged: the driver frees the blobs they name."""
        self._waiting = {lease: held for lease, held in self._waiting.items() if held.task.job != job}

    def inventory(self) -> tuple[HeldLease, ...]:
        """What HELLO says of leases: waiting ones count as running."""
        begun = [self.running.lease] if self.running else []
        return tuple(HeldLease(lease=lease, done=False) for lease in (*begun, *self._waiting)) + tuple(
            HeldLease(lease=lease, done=True) for lease in self._outcomes
        )
