"""The rules of docs/scheduling.md read once more, apart from the model and its reference: an agenda of what ends.

It takes what `digenctl simulate` takes and shares nothing with it. Exact fractions, micro-batches as objects, and
strategies that look ahead by playing copies of the world, one for every plan. Slow, and for few micro-batches.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction

UPDATE, TAG, WAIT = "update", "tag", "wait"


@dataclass(frozen=True)
class Instance:
    """As on the command line; `servers` 0: scoring is colocated."""

    micro_batches: int
    generate: float
    update: float
    assist: float | None = None
    score: float = 0.0
    switch: float = 0.0
    commit: float = 0.0
    servers: int = 0
    staleness: float = 0.0
    steps: int = 1

    def time(self, name: str) -> Fraction:
        return Fraction(repr(getattr(self, name)))


@dataclass
class Batch:
    """One micro-batch; `step`: the global step that it belongs to."""

    step: int


@dataclass
class Cluster:
    """Everything at one instant. Queues hold micro-batches in order of arrival."""

    given: Instance
    now: Fraction = Fraction(0)
    step: int = 0
    fresh: list[Batch] = field(default_factory=list)
    early: list[Batch] = field(default_factory=list)
    quota: int = 0
    to_score: list[Batch] = field(default_factory=list)
    to_update: list[Batch] = field(default_factory=list)
    agenda: list[tuple[Fraction, str, str, Batch | None]] = field(default_factory=list)
    training: bool = True
    waits: bool = False
    updates_left: int = 0
    tags: int = 0
    commits: list[Fraction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = [Batch(0) for _ in range(self.given.micro_batches)]
        self._begin_step()

    def _begin_step(self) -> None:
        given = self.given
        self.updates_left, self.tags, self.waits = given.micro_batches, 0, False
        last = self.step == given.steps - 1
        self.quota = 0 if last else int(Fraction(repr(given.staleness)) * given.micro_batches)
        self.early = [] if last else [Batch(self.step + 1) for _ in range(given.micro_batches)]

    def free(self, who: str) -> bool:
        return all(worker != who for _, worker, _, _ in self.agenda)

    def do(self, who: str, what: str, batch: Batch | None, longer: Fraction = Fraction(0)) -> None:
        self.agenda.append((self.now + longer + self.given.time(what), who, what, batch))

    @property
    def claimable(self) -> int:
        return len(self.fresh) or min(len(self.early), self.quota)

    def claim(self) -> Batch:
        if self.fresh:
            return self.fresh.pop(0)
        self.quota -= 1
        return self.early.pop(0)

    def next_to_score(self) -> Batch:
        batch = min(self.to_score, key=lambda each: each.step)
        self.to_score = [each for each in self.to_score if each is not batch]
        return batch

    @property
    def ready(self) -> list[Batch]:
        return [batch for batch in self.to_update if batch.step == self.step]

    def dispatch(self) -> None:
        """Servers, then the generator; the trainer only where it has no choice."""
        scored = self.given.score > 0
        for number in range(self.given.servers if scored else 0):
            if self.free(f"server {number}") and self.to_score:
                self.do(f"server {number}", "score", self.next_to_score())
        if self.free("generator"):
            if scored and not self.given.servers and self.to_score:
                self.do("generator", "score", self.next_to_score())
            elif self.claimable:
                self.do("generator", "generate", self.claim())
        if self.free("trainer") and self.updates_left == 0:
            self.do("trainer", "commit", None)

    def asks(self) -> bool:
        if not self.free("trainer"):
            return False
        if self.ready:
            self.waits = False
        able = self.given.assist is not None and self.claimable > 0
        return not self.waits and (bool(self.ready) or able)

    def obey(self, answer: str) -> None:
        if answer == WAIT:
            self.waits = True
            return
        trains = answer == UPDATE
        longer = self.given.time("switch") if trains != self.training else Fraction(0)
        self.training = trains
        if trains:
            batch = self.ready[0]
            self.to_update = [each for each in self.to_update if each is not batch]
            self.do("trainer", "update", batch, longer)
        else:
            self.tags += 1
            self.do("trainer", "assist", self.claim(), longer)

    def pass_time(self) -> None:
        """To the next instant at which something ends; all that ends then is applied."""
        self.now = min(end for end, _, _, _ in self.agenda)
        done = [entry for entry in self.agenda if entry[0] == self.now]
        self.agenda = [entry for entry in self.agenda if entry[0] != self.now]
        for _, _, what, batch in done:
            self._apply(what, batch)
        if self.given.commit == 0 and self.updates_left == 0 and not self.over:
            self._commit()

    def _apply(self, what: str, batch: Batch | None) -> None:
        if what == "commit":
            self._commit()
        elif what == "update":
            self.updates_left -= 1
        elif batch is not None:
            unscored = what != "score" and self.given.score > 0
            (self.to_score if unscored else self.to_update).append(batch)

    def _commit(self) -> None:
        self.commits.append(self.now)
        self.step += 1
        self.fresh = self.early
        if not self.over:
            self._begin_step()

    @property
    def over(self) -> bool:
        return self.step == self.given.steps


Strategy = Callable[[Cluster], str]


def play(cluster: Cluster, decide: Strategy, until_step: int | None = None) -> None:
    """Go on to the end, or to the commit of a global step."""
    while not cluster.over and (until_step is None or cluster.step <= until_step):
        cluster.dispatch()
        if cluster.asks():
            cluster.obey(decide(cluster))
            if not cluster.free("trainer"):
                continue
        cluster.pass_time()


def makespans(given: Instance, strategy: str) -> list[Fraction]:
    cluster = Cluster(given)
    play(cluster, named(strategy))
    return [end - begin for begin, end in zip([Fraction(0), *cluster.commits], cluster.commits, strict=False)]


def named(name: str) -> Strategy:
    kind, _, num = name.partition(":")
    simple: dict[str, Strategy] = {"never": never, "always": always, "planned": planned, "bts": bts}
    return first_tags(int(num)) if kind == "static" else simple[kind]


def never(cluster: Cluster) -> str:
    return UPDATE if cluster.ready else WAIT


def always(cluster: Cluster) -> str:
    return UPDATE if cluster.ready else TAG


def first_tags(num: int) -> Strategy:
    def decide(cluster: Cluster) -> str:
        able = cluster.given.assist is not None and cluster.fresh
        return TAG if able and cluster.tags < num else never(cluster)

    return decide


def planned(cluster: Cluster) -> str:
    if not cluster.fresh or cluster.given.assist is None:
        return at_the_tail(cluster)
    ends = [_commit_with(cluster, first_tags(cluster.tags + num)) for num in range(len(cluster.fresh) + 1)]
    return TAG if ends.index(min(ends)) > 0 else never(cluster)


def bts(cluster: Cluster) -> str:
    if cluster.ready:
        return UPDATE
    if not cluster.fresh or cluster.given.assist is None:
        return at_the_tail(cluster)
    skip, insert = (_best_after(cluster, answer) for answer in (WAIT, TAG))
    return TAG if insert < skip else WAIT


def _best_after(cluster: Cluster, answer: str) -> tuple[Fraction, int]:
    """(commit, TAG from here on) of the best way on that updates whenever it can."""
    world, step = deepcopy(cluster), cluster.step
    world.obey(answer)
    while world.step == step and not world.over:
        world.dispatch()
        if world.asks():
            if not world.ready and world.fresh and world.given.assist is not None:
                end, tags = min(_best_after(world, WAIT), _best_after(world, TAG))
                return end, tags + (answer == TAG)
            world.obey(never(world))
            if not world.free("trainer"):
                continue
        world.pass_time()
    return world.commits[step], int(answer == TAG)


def at_the_tail(cluster: Cluster) -> str:
    """Stale work for the trainer only where UQ is empty and the commit stays where it would be without."""
    if cluster.ready or not cluster.claimable or cluster.given.assist is None:
        return never(cluster)
    taking = deepcopy(cluster)
    taking.obey(TAG)
    play(taking, never, cluster.step)
    return TAG if taking.commits[cluster.step] <= _commit_with(cluster, never) else WAIT


def _commit_with(cluster: Cluster, decide: Strategy) -> Fraction:
    world = deepcopy(cluster)
    play(world, decide, cluster.step)
    return world.commits[cluster.step]
