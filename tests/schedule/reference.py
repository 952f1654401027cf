"""The schedule model a second time, written to be read: fractions, one list of micro-batches, no shared code.

Each micro-batch is a dict that says where it is; at each instant everything is looked through from the start. Slow.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

Zero = Fraction(0)


@dataclass
class Case:
    B: int
    g: Fraction
    t: Fraction
    h: Fraction | None = None
    s: Fraction = Zero
    c: Fraction = Zero
    y: Fraction = Zero
    n: int = 0
    f: Fraction = Zero
    steps: int = 1


@dataclass
class Batch:
    step: int
    order: int = 0
    place: str = "pending"
    until: Fraction = Zero


@dataclass
class World:
    case: Case
    decide: Callable[["World"], str]
    now: Fraction = Zero
    step: int = 0
    batches: list[Batch] = field(default_factory=list)
    arrivals: int = 0
    mode: str = "training"
    waiting: bool = False
    tagged: int = 0
    all_tagged: int = 0
    commit_at: Fraction | None = None
    commits: list[Fraction] = field(default_factory=list)

    def at(self, place: str, step: int | None = None) -> list[Batch]:
        return [b for b in self.batches if b.place == place and (step is None or b.step == step)]

    def quota_left(self) -> int:
        if self.step + 1 >= self.case.steps:
            return 0
        early = [b for b in self.batches if b.step == self.step + 1 and b.place != "pending"]
        return int(self.case.f * self.case.B) - len(early)

    def claimable(self) -> Batch | None:
        fresh = self.at("pending", self.step)
        if fresh:
            return fresh[0]
        return self.at("pending", self.step + 1)[0] if self.quota_left() > 0 else None

    def ready(self) -> int:
        return len(self.at("UQ", self.step))

    def arrive(self, batch: Batch, place: str) -> None:
        self.arrivals += 1
        batch.place, batch.order = place, self.arrivals

    def run(self) -> "World":
        self.batches = [Batch(step) for step in range(self.case.steps) for _ in range(self.case.B)]
        return self.until(self.case.steps)

    def until(self, commits: int) -> "World":
        while len(self.commits) < commits:
            self.dispatch()
            self.now = min([b.until for b in self.batches if " by " in b.place] + self.commit_instants())
            self.complete()
        return self

    def ahead(self, decide: Callable[["World"], str]) -> tuple[Fraction, int]:
        """(commit of the open step, TAG in it) if from now on another strategy decides."""
        batches = [replace(batch) for batch in self.batches]
        world = replace(self, decide=decide, batches=batches, commits=self.commits.copy(), tagged=0, all_tagged=0)
        return world.until(len(self.commits) + 1).commits[-1], world.all_tagged

    def commit_instants(self) -> list[Fraction]:
        return [] if self.commit_at is None else [self.commit_at]

    def complete(self) -> None:
        for batch in self.batches:
            if " by " in batch.place and batch.until == self.now:
                doing = batch.place.split(" by ")[0]
                if doing == "generating":
                    self.arrive(batch, "SQ" if self.case.s else "UQ")
                elif doing == "scoring":
                    self.arrive(batch, "UQ")
                else:
                    batch.place = "updated"
        if len(self.at("updated", self.step)) == self.case.B and self.commit_at is None:
            self.commit_at = self.now + self.case.y
        if self.commit_at == self.now:
            self.commits.append(self.now)
            self.step += 1
            self.tagged, self.commit_at = 0, None

    def busy(self, who: str) -> bool:
        return any(batch.place.endswith(f" by {who}") for batch in self.batches)

    def begin(self, batch: Batch, doing: str, who: str, lasts: Fraction) -> None:
        batch.place, batch.until = f"{doing} by {who}", self.now + lasts

    def next_to_score(self) -> Batch | None:
        waiting = sorted(self.at("SQ"), key=lambda b: (b.step, b.order))
        return waiting[0] if waiting else None

    def dispatch(self) -> None:
        case = self.case
        for server in range(case.n):
            batch = self.next_to_score()
            if batch and not self.busy(f"server{server}"):
                self.begin(batch, "scoring", f"server{server}", case.s)
        if not self.busy("generator"):
            batch = self.next_to_score() if case.n == 0 else None
            if batch:
                self.begin(batch, "scoring", "generator", case.s)
            elif (batch := self.claimable()) is not None:
                self.begin(batch, "generating", "generator", case.g)
        if self.busy("trainer") or self.commit_at is not None:
            return
        self.trainer()

    def trainer(self) -> None:
        case = self.case
        if self.ready():
            self.waiting = False
        able = case.h is not None and self.claimable() is not None
        if self.waiting or not (self.ready() or able):
            return
        answer = self.decide(self)
        if answer == "wait":
            self.waiting = True
            return
        mode = "training" if answer == "update" else "generating"
        front = case.c if mode != self.mode else Zero
        self.mode = mode
        if answer == "update":
            batch = min(self.at("UQ", self.step), key=lambda b: b.order)
            self.begin(batch, "updating", "trainer", front + case.t)
            return
        claimed = self.claimable()
        assert claimed is not None
        assert case.h is not None
        self.tagged += 1
        self.all_tagged += 1
        self.begin(claimed, "generating", "trainer", front + case.h)


def never(world: World) -> str:
    return "update" if world.ready() else "wait"


def always(world: World) -> str:
    return "update" if world.ready() else "tag"


def static(num: int) -> Callable[[World], str]:
    def decide(world: World) -> str:
        fresh = world.at("pending", world.step)
        return "tag" if world.case.h is not None and fresh and world.tagged < num else never(world)

    return decide


class _Asked(Exception):
    pass


def _script(answers: list[str]) -> Callable[[World], str]:
    left = iter(answers)

    def decide(world: World) -> str:
        try:
            return next(left)
        except StopIteration:
            claimable = world.claimable()
            fresh = "" if claimable is None else "+tag+fresh" if claimable.step == world.step else "+tag"
            raise _Asked(("update" if world.ready() else "wait") + fresh) from None

    return decide


def brute(case: Case, eager: bool) -> tuple[Fraction, int]:
    """(makespan, fewest TAG) over every sequence of answers; `eager`: UPDATE wherever there is one."""
    best: tuple[Fraction, int] | None = None
    stack: list[list[str]] = [[]]
    while stack:
        answers = stack.pop()
        try:
            world = World(case, _script(answers)).run()
        except _Asked as asked:
            options = str(asked).split("+")
            if eager and options[0] == "update":
                options = options[:1]
            stack += [[*answers, option] for option in options if option == options[0] or (option == "tag" and case.h)]
            continue
        found = (world.commits[-1], world.all_tagged)
        best = found if best is None or found < best else best
    assert best is not None
    return best


def planned(world: World) -> str:
    fresh = len(world.at("pending", world.step))
    if world.case.h is None or not fresh:
        return at_the_tail(world)
    ends = [world.ahead(static(num)) for num in range(fresh + 1)]
    return "tag" if ends.index(min(ends)) else never(world)


def bts(world: World) -> str:
    if world.case.h is None or world.ready() or not world.at("pending", world.step):
        return at_the_tail(world)
    found: list[tuple[Fraction, int, str]] = []
    stack = [["wait"], ["tag"]]
    while stack:
        answers = stack.pop()
        try:
            end, tags = world.ahead(_script(answers))
        except _Asked as asked:
            options = str(asked).split("+")
            fresh = options[0] == "wait" and "fresh" in options
            stack += [[*answers, option] for option in (options[0], "tag") if option != "tag" or fresh]
            continue
        found.append((end, tags, "tag" if answers[0] == "tag" else "a wait"))
    return min(found)[2].removeprefix("a ")


def at_the_tail(world: World) -> str:
    """Nothing of the open step is pending: stale work is taken where its commit does not move."""
    if world.ready() or world.case.h is None or world.claimable() is None:
        return never(world)
    one = iter(["tag"])
    delayed, _ = world.ahead(lambda later: next(one, None) or never(later))
    return "tag" if delayed <= world.ahead(never)[0] else "wait"
