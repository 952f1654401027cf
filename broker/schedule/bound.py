"""An admissible lower bound on what is left after a bubble, for `bts`: no schedule that it could choose ends sooner.

For x more TAG the last update ends no sooner than the trainer can do x TAG, all updates and the switches that they
need, nor than one update after the last arrival in UQ. The first grows with x, the second shrinks.
"""

from broker.schedule.moves import assist_of
from broker.schedule.supply import Supply
from broker.schedule.times import Times


class Bound:
    """Of one phase, for any number pending: its parts are linear in that number.

    A run is TAG after TAG with UQ empty in between. All but its last end before the next arrival in UQ, and a run that
    begins after this bubble begins at least one update later than the arrival before: so a run has at most `run` TAG,
    the one that begins, or goes on, at this bubble `first_run`. Each run after the first costs two switches.
    """

    __slots__ = (
        "assist",
        "first_run",
        "flight",
        "into",
        "last",
        "run",
        "scorers",
        "scoring",
        "soon",
        "switch",
        "times",
        "unless",
    )

    def __init__(self, supply: Supply, now: int, generating: bool, times: Times) -> None:
        self.times, self.assist, self.switch = times, assist_of(times), times.switch
        self.into = 0 if generating else times.switch
        keep = supply.pending
        supply.pending = 0
        self.soon, *none = supply.least(now)
        self.flight = supply.remaining()
        supply.pending = 1
        _, *one = supply.least(now)
        supply.pending = keep
        self.last = (none[0], one[0] - none[0])
        self.scoring = (none[1], one[1] - none[1])
        self.scorers = supply.scorers
        self.unless = min(self.soon, self.into + self.assist + times.score)
        if supply.one_a_run:
            self.run = self.first_run = 1
            return
        self.run = _fit(supply.gap() - times.update - times.switch, self.assist)
        self.first_run = _fit(self.soon - self.into, self.assist)
        if not generating:
            self.first_run = max(self.first_run, self.run)

    def of(self, pending: int) -> tuple[int, int]:
        """The least (ticks to the end of the last update, TAG), `pending` micro-batches being to be claimed."""
        update, generate = self.times.update, self.times.generate
        updates = (self.flight + pending) * update
        last = self.last[0] + pending * self.last[1] + update
        floor = -(-(self.scoring[0] + pending * self.scoring[1]) // self.scorers) + update
        back = self.switch - self.into
        least, tags = max(last, floor, self.soon + updates + back), 0
        floor = max(floor, self.unless + updates + self.switch)
        work = updates + self.switch + self.into
        x = self._crossing(last - work, pending)
        for candidate in (x, x - 1):
            if candidate > 0:
                reached = max(floor, self._trainer(work, candidate), last - candidate * generate)
                if reached < least or (reached == least and candidate < tags):
                    least, tags = reached, candidate
        if tags:
            tags = max(1, -((least - last) // generate))
        return least, tags

    def _trainer(self, work: int, tags: int) -> int:
        runs = -(-max(0, tags - self.first_run) // self.run)
        return work + tags * self.assist + 2 * self.switch * runs

    def _crossing(self, slack: int, pending: int) -> int:
        """The least number of TAG with which the trainer's work is no less than what arrives last leaves, or all."""
        generate, switches = self.times.generate, 2 * self.switch
        both = self.assist + generate
        share = -(-(slack * self.run + switches * self.first_run) // (both * self.run + switches))
        x = max(1, min(pending, -(-slack // both), share))
        while x > 1 and self._trainer(0, x - 1) + (x - 1) * generate >= slack:
            x -= 1
        return x


def _fit(room: int, assist: int) -> int:
    """How many begin in less than `room`, one after the other; one at least."""
    return max(1, -(-room // assist))
