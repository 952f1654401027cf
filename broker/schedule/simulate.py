"""The schedule model, event by event: one generator pool, one trainer, reward servers, several global steps.

Owns the order of what happens at one instant: all that ends is applied first, a commit too, then reward servers,
generator and trainer are given work, in this order. Asks a strategy as the live core does and never looks ahead itself.
Invariant: integers only, so that two runs of the same setup agree to the tick. The model: docs/scheduling.md.
"""

from dataclasses import dataclass, field, replace

from broker.schedule.durations import Durations, Exact, as_fraction
from broker.schedule.snapshot import Model, Running, Snapshot
from broker.schedule.spans import GENERATOR, TRAINER, Timeline, server
from broker.strategies import Answer, Strategy, TrainerView

MOST = 100_000
"""Micro-batches, or global steps: more than any job has, and few enough for memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`staleness`: the largest share of a global step's micro-batches made with the version before (TCSS).

    Raises ValueError, naming what is wrong.
    """

    model: Model
    micro_batches: int
    steps: int = 1
    staleness: float = 0.0

    def __post_init__(self) -> None:
        for name in ("micro_batches", "steps"):
            if not 1 <= getattr(self, name) <= MOST:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1 and at most {MOST:,}")
        as_fraction(self.staleness, "staleness")

    @property
    def stale_quota(self) -> int:
        """floor(staleness x micro-batches), exactly."""
        return int(as_fraction(self.staleness, "staleness") * self.micro_batches)

    @property
    def dedicated(self) -> bool:
        return self.model.servers > 0 and self.model.times.score > 0


@dataclass(slots=True)
class Task:
    """`expected`: what a strategy is told that it takes."""

    label: str
    step: int
    start: int
    end: int
    expected: int


@dataclass(slots=True)
class Run:
    """A run under way. `sq`, `uq`: micro-batches by global step, the open one and the next; `answers`: the strategy's.

    `copy` gives an equal run that goes its own way (without the timeline).
    """

    setup: Setup
    durations: Durations
    timeline: Timeline | None = None
    now: int = 0
    step: int = 0
    pending: int = 0
    stale: int = 0
    claimed_early: int = 0
    sq: list[int] = field(default_factory=lambda: [0, 0])
    uq: list[int] = field(default_factory=lambda: [0, 0])
    updated: int = 0
    assisted: int = 0
    total_assisted: int = 0
    waits: bool = False
    generating: bool = False
    generator: Task | None = None
    trainer: Task | None = None
    servers: list[Task | None] = field(default_factory=list)
    counts: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    @classmethod
    def of(cls, setup: Setup, durations: Durations | None = None, timeline: Timeline | None = None) -> "Run":
        run = cls(setup, durations or Exact(setup.model.times), timeline)
        run.servers = [None] * (setup.model.servers if setup.dedicated else 0)
        run._open()
        return run

    def copy(self) -> "Run":
        return replace(
            self,
            timeline=None,
            sq=self.sq.copy(),
            uq=self.uq.copy(),
            servers=self.servers.copy(),
            counts=self.counts.copy(),
            commits=self.commits.copy(),
            answers=self.answers.copy(),
        )

    @property
    def over(self) -> bool:
        return self.step == self.setup.steps

    def question(self) -> TrainerView | None:
        """Go on until the trainer is to be told what to do; None: a commit came first."""
        done = len(self.commits)
        while True:
            view = self._dispatch()
            if view is not None:
                return view
            if self.timeline:
                self._note_idle(self.timeline)
            self.now = min(task.end for task in self._running())
            self._complete()
            if len(self.commits) > done:
                return None

    def answer(self, answer: Answer) -> None:
        """What the trainer is to do. Raises ValueError where it cannot."""
        if (answer is Answer.UPDATE and not self.uq[0]) or (answer is Answer.TAG and not (self.pending or self.stale)):
            raise ValueError(f"{answer.value} at {self.now}: there is no micro-batch for it")
        self.answers.append(answer)
        if answer is Answer.WAIT:
            self.waits = True
        elif answer is Answer.TAG:
            self.assisted += 1
            self.total_assisted += 1
            self.trainer = self._switched("assist", self._claim(), generating=True)
        else:
            self.uq[0] -= 1
            self.trainer = self._switched("update", self.step, generating=False)

    def until_commit(self, strategy: Strategy) -> int:
        """Go on to the next commit; returns when it is."""
        while (view := self.question()) is not None:
            self.answer(strategy.decide(view))
        return self.now

    def to_end(self, strategy: Strategy) -> int:
        while not self.over:
            self.until_commit(strategy)
        if self.timeline:
            self.timeline.close(self.now)
        return self.now

    def _running(self) -> list[Task]:
        return [task for task in (self.generator, self.trainer, *self.servers) if task is not None]

    def _open(self) -> None:
        self.pending = self.setup.micro_batches - self.claimed_early
        self.stale = self.setup.stale_quota if self.step + 1 < self.setup.steps else 0
        self.claimed_early = self.updated = self.assisted = 0

    def _complete(self) -> None:
        for at, task in enumerate(self.servers):
            if task is not None and task.end == self.now:
                self.servers[at] = None
                self.uq[task.step - self.step] += 1
        if self.generator is not None and self.generator.end == self.now:
            task, self.generator = self.generator, None
            self._made(task)
        if self.trainer is not None and self.trainer.end == self.now:
            task, self.trainer = self.trainer, None
            self._trained(task)

    def _made(self, task: Task) -> None:
        if task.label == "score" or self.setup.model.times.score == 0:
            self.uq[task.step - self.step] += 1
        else:
            self.sq[task.step - self.step] += 1

    def _trained(self, task: Task) -> None:
        if task.label == "assist":
            self._made(task)
        elif task.label == "update":
            self.updated += 1
            if self.updated == self.setup.micro_batches and self.setup.model.times.commit == 0:
                self._commit()
        else:
            self._commit()

    def _commit(self) -> None:
        self.commits.append(self.now)
        self.step += 1
        self.sq, self.uq = [self.sq[1], 0], [self.uq[1], 0]
        if not self.over:
            self._open()

    def _dispatch(self) -> TrainerView | None:
        """Returns what the strategy is to be asked, if it is."""
        for at, task in enumerate(self.servers):
            if task is None and any(self.sq):
                self.servers[at] = self._score(server(at))
        if self.generator is None:
            if any(self.sq) and not self.setup.dedicated:
                self.generator = self._score(GENERATOR)
            elif self.pending or self.stale:
                self.generator = self._start(GENERATOR, "generate", self._claim())
        if self.trainer is not None:
            return None
        if self.updated == self.setup.micro_batches:
            self.trainer = self._start(TRAINER, "commit", self.step)
            return None
        return self._view_if_asked()

    def _score(self, worker: str) -> Task:
        ahead = 0 if self.sq[0] else 1
        self.sq[ahead] -= 1
        return self._start(worker, "score", self.step + ahead)

    def _claim(self) -> int:
        """Returns the global step that the micro-batch is of."""
        if self.pending:
            self.pending -= 1
            return self.step
        self.stale -= 1
        self.claimed_early += 1
        return self.step + 1

    def _start(self, worker: str, label: str, step: int, front: int = 0, expected_front: int = 0) -> Task:
        index = self.counts.get((label, step), 0)
        self.counts[label, step] = index + 1
        begin = self.now + front
        end = begin + self.durations.ticks(label, step, index)
        if self.timeline:
            self.timeline.work(worker, "switch", step, self.now, begin)
            self.timeline.work(worker, label, step, begin, end)
        expected: int = getattr(self.durations.times, label)
        return Task(label, step, self.now, end, expected + expected_front)

    def _view_if_asked(self) -> TrainerView | None:
        if self.uq[0]:
            self.waits = False
        able = self.durations.times.assist is not None and (self.pending or self.stale)
        return self._view() if not self.waits and (self.uq[0] or able) else None

    def _switched(self, label: str, step: int, *, generating: bool) -> Task:
        if generating == self.generating:
            return self._start(TRAINER, label, step)
        self.generating = generating
        index = self.counts.get(("switch", self.step), 0)
        self.counts["switch", self.step] = index + 1
        front = self.durations.ticks("switch", self.step, index)
        return self._start(TRAINER, label, step, front, self.durations.times.switch)

    def _view(self) -> TrainerView:
        times = self.durations.times
        open_to_it = self.pending or self.stale
        flight = [task for task in self._running() if task.step == self.step]
        return TrainerView(
            pending=open_to_it if times.assist is not None else 0,
            ready=self.uq[0],
            in_flight=len(flight) + self.sq[0],
            assisted=self.assisted,
            stale=self.pending == 0 and self.stale > 0,
            model=replace(self.setup.model, times=times),
            snapshot=self._snapshot(),
        )

    def _snapshot(self) -> Snapshot:
        servers = [self._left(task) for task in self.servers]
        return Snapshot(
            pending=self.pending,
            queued=self.sq[0],
            ready=self.uq[0],
            generator=self._left(self.generator),
            servers=tuple(task for task in servers if task is not None),
            generating=self.generating,
            stale=self.stale,
            later=self.sq[1],
        )

    def _left(self, task: Task | None) -> Running | None:
        """As a strategy is told: from what the task is expected to take, not from what it will."""
        if task is None:
            return None
        left = max(1, task.start + task.expected - self.now)
        return Running(left, scoring=task.label == "score", later=task.step > self.step)

    def _note_idle(self, timeline: Timeline) -> None:
        scoring = [task for task in (self.generator, *self.servers) if task and task.label == "score"]
        scored = self.sq[0] or any(task.step == self.step for task in scoring)
        timeline.state(TRAINER, self.now, None if self.trainer else "reward" if scored else "generation")
        timeline.state(GENERATOR, self.now, None if self.generator else "update")
        for at, task in enumerate(self.servers):
            timeline.state(server(at), self.now, None if task else "no sample to score")
