"""A simulated trainer as one of several ranks: it opens a store, meets the others, and loses them.

Behaves as the worker daemon around torch.distributed does, in virtual time: whoever follows notices soon that rank 0
is gone, rank 0 notices a lost rank when it needs it, ranks that do not answer are given up after their time limit. Must
not know the core.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.events import RankBroke, RankReady, StoreReady
from broker.harness_world import InvariantBroken
from digend.wire.ranks import Ranks
from digend.wire.tasks import TaskError

if TYPE_CHECKING:
    from broker.harness_shell import Shell

MEET_NS = 50_000_000
"""From being asked to having opened a store, or met the others."""
NOTICE_NS = 100_000_000
"""From the end of a process to what its peers see of it."""


@dataclass(slots=True, eq=False)
class Meeting:
    """One epoch's store, and who came to it by rank."""

    job: str
    epoch: int
    seats: "dict[int, Seat]" = field(default_factory=dict)


class Seat:
    """What one process is among ranks. `deaf`: it does not answer when it is asked to meet; for tests."""

    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self.meeting: Meeting | None = None
        self.place: Ranks | None = None
        self.met = self.deaf = False
        self._news: StoreReady | RankReady | RankBroke | None = None

    @property
    def inventory(self) -> dict[str, int]:
        """What HELLO says."""
        return {self.meeting.job: self.meeting.epoch} if self.met and self.meeting is not None else {}

    def open(self, job: str, epoch: int) -> None:
        if self.deaf:
            return
        self.leave()
        meeting = self.meeting = Meeting(job, epoch)
        store = f"{self.shell.engine.instance}:{epoch}"
        self.shell.engine.world.meetings[store] = meeting
        self._later(MEET_NS, meeting, lambda: self._tell(StoreReady(session="", job=job, epoch=epoch, store=store)))

    def join(self, job: str, place: Ranks) -> None:
        """Until all are there, or the time limit has passed."""
        meeting = self.shell.engine.world.meetings.get(place.store)
        if self.deaf or (self.place == place and self.meeting is meeting):
            return
        if meeting is None or (meeting.job, meeting.epoch) != (job, place.epoch):
            raise InvariantBroken(f"{self.shell.name} is to join {place}, a store that was never opened for it")
        if self.meeting is not meeting:
            self.leave()
        self.meeting, self.place = meeting, place
        self._later(MEET_NS, meeting, lambda: self._arrive(meeting, place))
        self._later(int(place.timeout_s * 1e9), meeting, lambda: self._give_up("the others did not come"))

    def leave(self) -> None:
        """At once. A task that runs ends; who follows sees that rank 0 is gone."""
        meeting, was_met = self.meeting, self.met
        self.meeting, self.place, self.met, self._news = None, None, False, None
        if meeting is not None and was_met:
            self.shell.abort(_lost("it was told to leave"))
            self._leave_alone(meeting)

    def die(self) -> None:
        meeting, was_met = self.meeting, self.met
        self.meeting, self.met = None, False
        if meeting is not None and was_met:
            self._leave_alone(meeting)

    def others_answer(self) -> bool | None:
        """Whether all other ranks work with this one: False where one is gone, None where one stands still."""
        seats = self._all()
        if any(seat.meeting is not self.meeting or not seat.shell.alive for seat in seats):
            return False
        return None if any(seat.shell.frozen for seat in seats) else True

    def may_run(self, ranks: int) -> bool:
        """Whether a task of a job with so many ranks may run here."""
        if ranks == 1:
            return self.meeting is None
        return self.met and self.place is not None and self.place.rank == 0 and self.place.size == ranks

    def tell_again(self) -> None:
        """To a new session."""
        if self._news is not None:
            self._tell(self._news)

    # ---------------------------------------------------------------------------------------------------------------

    def _all(self) -> "list[Seat]":
        return list(self.meeting.seats.values()) if self.meeting is not None else []

    def _arrive(self, meeting: Meeting, place: Ranks) -> None:
        meeting.seats[place.rank] = self
        seats = list(meeting.seats.values())
        there = [seat for seat in seats if seat.meeting is meeting and seat.shell.alive]
        if len(there) == place.size:
            for seat in there:
                seat.met = True
                seat._tell(RankReady(session="", job=meeting.job, epoch=meeting.epoch))

    def _give_up(self, why: str) -> None:
        if not self.met and self.meeting is not None:
            self._tell(RankBroke(session="", job=self.meeting.job, epoch=self.meeting.epoch, error=_lost(why)))

    def _leave_alone(self, meeting: Meeting) -> None:
        """Peers notice: rank 0 where a task of it runs, the others where rank 0 is who is gone."""
        leader_gone = meeting.seats.get(0) is self
        for rank, seat in meeting.seats.items():
            if seat is not self and (leader_gone or rank == 0):
                seat._later(NOTICE_NS, meeting, seat._notice)

    def _notice(self) -> None:
        meeting = self.meeting
        if meeting is None or self.place is None or not self.met:
            return
        if self.place.rank == 0:
            self.shell.abort(_lost("a rank is gone"))
        else:
            self._tell(RankBroke(session="", job=meeting.job, epoch=meeting.epoch, error=_lost("rank 0 is gone")))

    def _later(self, after_ns: int, meeting: Meeting, action: Callable[[], None]) -> None:
        """Unless this process is dead or elsewhere by then; one that stands still does it when it goes on."""

        def act() -> None:
            if not self.shell.alive or self.meeting is not meeting:
                return
            if self.shell.frozen:
                self.shell.host.at(self.shell.host.now_ns + NOTICE_NS, act)
            else:
                action()

        self.shell.host.at(self.shell.host.now_ns + after_ns, act)

    def _tell(self, news: StoreReady | RankReady | RankBroke) -> None:
        self._news = news
        self.shell.tell_of_ranks(news)


def _lost(why: str) -> TaskError:
    return TaskError(reason="rank_lost", message=why, retry=True)
