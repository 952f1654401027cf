"""`planned`: the best of "k TAG first, then update", planned anew whenever the trainer is free. The default.

It is the optimum over all orders of the trainer's tasks. Fix the number k of TAG still to come. Doing them first brings
every TAG result to SQ no later than any other order does; a generator that scores first, and servers that take SQ in
order, then end the i-th score no later, for every i. The last update ends no sooner than k TAG, all updates and the
fewest switches take, nor than the i-th arrival in UQ and the updates that it leaves; TAG first meets the largest of
these. So the best k is the best order. Where one rollout feeds several global steps, a commit between two of them is
part of the update before it. `docs/scheduling.md` has the argument in full.
"""

from dataclasses import dataclass

from broker.schedule.choice import Choice, cold, settled
from broker.schedule.moves import assist_of, back, finish, tag
from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supplies import supply_of
from broker.strategies import Answer, TrainerView


@dataclass(frozen=True, slots=True)
class Plan:
    """Ticks from now to the end of the last update with `tags` TAG first, and with none; `states`: how many k were
    tried."""

    tags: int
    end: int
    without: int
    states: int


@dataclass(frozen=True, slots=True)
class Planned:
    def decide(self, view: TrainerView) -> Answer:
        return self.search(view).answer

    def search(self, view: TrainerView) -> Choice:
        if view.model is None or view.snapshot is None or (view.pending and view.model.times.assist is None):
            return cold(view)
        if not view.pending or view.stale:
            return settled(view, view.model, view.snapshot)
        plan = best(view.model, view.snapshot)
        answer = Answer.TAG if plan.tags else Answer.UPDATE if view.ready else Answer.WAIT
        return Choice(answer=answer, tags=plan.tags, end=plan.end, without=plan.without, states=plan.states)


def best(model: Model, snapshot: Snapshot) -> Plan:
    """The best number of TAG to begin with, the fewest where several are as good.

    One walk along TAG after TAG; from each of its instants the rest is in closed form. It ends where TAG and updates
    alone, without any waiting, are too long.
    """
    times = model.times
    supply, now, generating, commits = supply_of(model, snapshot), 0, snapshot.generating, snapshot.commits
    updates = supply.remaining() * times.update + len(commits) * times.commit
    without = end = finish(supply, 0, back(generating, times), times, commits)
    tags = tried = 0
    while supply.pending and now + assist_of(times) + times.switch * (not generating) + updates + times.switch < end:
        now = tag(supply, now, generating, times)
        generating = True
        tried += 1
        reached = finish(supply, now, times.switch, times, commits)
        if reached < end:
            tags, end = tried, reached
    return Plan(tags, end, without, tried + 1)
