"""`bts`: Bubble-Triggered TAG Search, the paper's Algorithm 2. UPDATE where UQ is not empty; at a bubble a search over
this and all later ones decides between InsertTAG and SkipBubble, anew at each bubble.

Best-first branch and bound on an explicit heap: the state with the least (lower bound, TAG) is expanded next, so that
the first finished one is the optimum. States are compressed to (phase, pending), each expanded once for its earliest
instant. How a phase goes on does not depend on the number pending until that runs out, so each phase's two moves are
worked out once. Invariant: bounds are admissible, the answer is exact unless the budget ends first.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush

from broker.schedule.bound import Bound
from broker.schedule.choice import Choice, cold, settled
from broker.schedule.moves import back, tag, update
from broker.schedule.planned import Planned, best
from broker.schedule.snapshot import Model, Snapshot
from broker.schedule.supplies import supply_of
from broker.schedule.supply import Supply
from broker.schedule.times import Times
from broker.strategies import Answer, TrainerView

BUDGET = 50_000
"""Expanded states of one search: under a second, and some 128 micro-batches in the worst case seen."""
_SKIP, _TAG, _ROOT = 0, 1, -1


@dataclass(frozen=True, slots=True)
class Bts:
    budget: int = BUDGET

    def decide(self, view: TrainerView) -> Answer:
        return self.search(view).answer

    def search(self, view: TrainerView) -> Choice:
        if view.model is None or view.snapshot is None or (view.pending and view.model.times.assist is None):
            return cold(view)
        if view.ready or not view.pending or view.stale or not view.snapshot.pending:
            return settled(view, view.model, view.snapshot)
        if view.snapshot.ready or view.snapshot.commits:  # commits in between: no bubbles as the search knows them
            return Planned().search(view)
        return search(view.model, view.snapshot, self.budget)


def search(model: Model, snapshot: Snapshot, budget: int = BUDGET) -> Choice:
    """The answer at a bubble: UQ is empty, micro-batches are pending. Fewer TAG where two are as good, then WAIT."""
    tree = _Tree(model, snapshot)
    found = tree.run(budget)
    without = supply_of(model, snapshot).finish(0, back(snapshot.generating, model.times), model.times.update)
    if found is not None:
        end, tags, first = found
        answer = Answer.TAG if first == _TAG else Answer.WAIT
        return Choice(answer=answer, tags=tags, end=end, without=without, states=tree.states)
    plan = best(model, snapshot)
    answer = Answer.TAG if plan.tags else Answer.WAIT
    return Choice(answer=answer, tags=plan.tags, end=plan.end, without=without, states=tree.states, exhausted=True)


@dataclass(slots=True)
class _Phase:
    """A bubble apart from the number pending: a supply at instant `at`, and where SkipBubble and InsertTAG lead."""

    supply: Supply
    at: int
    generating: bool
    bound: Bound
    moves: list["tuple[int, int, _Phase | None] | None"] = field(default_factory=lambda: [None, None])


class _Tree:
    """A state is (phase, pending, now, TAG so far, first move)."""

    def __init__(self, model: Model, snapshot: Snapshot) -> None:
        self.times = model.times
        self.most = snapshot.pending
        self.phases: dict[tuple[int, ...], _Phase] = {}
        self.seen: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.heap: list[tuple[int, int, int, int, int, _Phase | None, int, int]] = []
        self.states = self.pushed = 0
        root = self._phase(supply_of(model, snapshot), 0, snapshot.generating)
        self._push(root, snapshot.pending, 0, 0, _ROOT)

    def run(self, budget: int) -> tuple[int, int, int] | None:
        """(end of the last update, TAG, first move), None where the budget ended first."""
        while self.states < budget:
            end, tags, first, pending, _, phase, now, sofar = heappop(self.heap)
            if phase is None:
                return end, tags, first
            if self.seen[id(phase), pending] < (now, sofar, first):
                continue
            self.states += 1
            for move in (_SKIP, _TAG):
                self._go(phase, pending, now, sofar, move, move if first == _ROOT else first)
        return None

    def _go(self, phase: _Phase, pending: int, now: int, tags: int, move: int, first: int) -> None:
        known = phase.moves[move]
        if known is None:
            known = phase.moves[move] = self._follow(phase, move)
        elapsed, claimed, then = known
        tags += move == _TAG
        if then is not None and pending > claimed:
            self._push(then, pending - claimed, now + elapsed, tags, first)
            return
        supply = phase.supply.copy()
        supply.pending = pending
        at, generating = _until_bubble(supply, phase.at, phase.generating, move, self.times)
        end = now - phase.at + supply.finish(at, back(generating, self.times), self.times.update)
        self.pushed += 1
        heappush(self.heap, (end, tags, first, 0, self.pushed, None, 0, 0))

    def _push(self, phase: _Phase, pending: int, now: int, tags: int, first: int) -> None:
        cost = (now, tags, first)
        known = self.seen.get((id(phase), pending))
        if known is not None and known <= cost:
            return
        self.seen[id(phase), pending] = cost
        least, more = phase.bound.of(pending)
        self.pushed += 1
        heappush(self.heap, (now + least, tags + more, first, pending, self.pushed, phase, now, tags))

    def _follow(self, phase: _Phase, move: int) -> tuple[int, int, _Phase | None]:
        """(ticks, micro-batches claimed, phase of the next bubble), with as many pending as there can be."""
        supply = phase.supply.copy()
        supply.pending = self.most
        at, generating = _until_bubble(supply, phase.at, phase.generating, move, self.times)
        then = self._phase(supply, at, generating) if supply.pending else None
        return at - phase.at, self.most - supply.pending, then

    def _phase(self, supply: Supply, at: int, generating: bool) -> _Phase:
        key = (generating, *supply.phase(at))
        found = self.phases.get(key)
        if found is None:
            bound = Bound(supply, at, generating, self.times)
            found = self.phases[key] = _Phase(supply, at, generating, bound)
        return found


def _until_bubble(supply: Supply, now: int, generating: bool, move: int, times: Times) -> tuple[int, bool]:
    """Skip the bubble or fill it, then update for as long as UQ is not empty and micro-batches are pending."""
    if move == _TAG:
        now, generating = tag(supply, now, generating, times), True
    else:
        now = supply.wait()
    while supply.ready and supply.pending:
        now, generating = update(supply, now, generating, times), False
    return now, generating
