"""What `digenctl top` shows, asked of the driver again and again: status, jobs, and the newest records of those that
run.

Owns the asking and what is kept between two looks. Knows no screen. Invariant: bounded, whatever a job's length: a
reader begins `TAIL` records before the newest, and keeps so many spans and a figure a global step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clients.api import FINAL_STATES, Digend
from clients.chart import Piece
from clients.window import piece_of
from digend.telemetry.timeline import Timeline
from digend.wire.records import EvaluationRecord, Record, RestartRecord, StepRecord
from digend.wire.views import JobView, NodeView, StatusView

TAIL = 4000
MAX_REQUESTS = 40
"""In one look at one job; what is left comes with the next."""

_KINDS = {
    "prepare": "load",
    "commit": "optimizer",
    "reset": "update",
    "evaluate_score": "evaluate",
}
"""What a task that still runs is drawn as; others as themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A job that is looked at. `rewards`: of its newest global steps that have one; `step_s`: how long the last one
    took."""

    job: JobView
    rewards: tuple[float, ...]
    step_s: float | None
    evaluation: EvaluationRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One look. `watched`: the jobs that have workers, else the newest; `waiting`: the others that are not over.

    `pieces` are of [start_ns, end_ns) of the driver's clock, in order of time; `away`: why there is nothing newer.
    """

    address: str
    status: StatusView
    watched: tuple[Watched, ...]
    waiting: tuple[JobView, ...]
    pieces: tuple[Piece, ...]
    start_ns: int
    end_ns: int
    staged: tuple[Piece, ...]
    """What workers stage while they do that."""
    over: bool
    """Nothing runs: the window is the end of the newest job."""
    away: str = ""


class Reader:
    """The records of one job, as far as they came."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._timeline = Timeline(limit=TAIL)
        self._steps: dict[int, StepRecord] = {}
        self._step_s: float | None = None
        self._evaluation: EvaluationRecord | None = None

    def read(self, driver: Digend, job: str) -> None:
        """Raises ClientError."""
        for _ in range(MAX_REQUESTS):
            records = driver.records(job, self._since).records
            if not records:
                return
            for record in records:
                self._add(record)
            self._since += len(records)

    def watched(self, job: JobView) -> Watched:
        means = [self._steps[step].reward_mean for step in sorted(self._steps)]
        rewards = tuple(mean for mean in means if mean is not None)
        return Watched(job=job, rewards=rewards, step_s=self._step_s, evaluation=self._evaluation)

    def pieces(self, start_ns: int) -> list[Piece]:
        return [piece_of(span) for span in self._timeline.spans if span.end_ns > start_ns]

    def staged(self, start_ns: int) -> list[Piece]:
        return [piece_of(span) for span in self._timeline.stagings if span.end_ns > start_ns]

    def _add(self, record: Record) -> None:
        self._timeline.add(record)
        body = record.body
        if isinstance(body, StepRecord):
            self._steps[body.global_step] = body
            self._step_s = body.seconds
        elif isinstance(body, EvaluationRecord):
            self._evaluation = body
        elif isinstance(body, RestartRecord):
            self._steps = {step: each for step, each in self._steps.items() if step <= body.global_step}


class Feed:
    """Readers of the jobs that are looked at; a job that is not any more is forgotten."""

    def __init__(self, window_s: float) -> None:
        self._window_ns = round(window_s * 1e9)
        self._readers: dict[str, Reader] = {}

    def look(self, driver: Digend) -> Frame:
        """Raises ClientError."""
        status, jobs = driver.status(), driver.newest_jobs().jobs
        active = status.jobs
        newest = max(jobs, key=lambda each: each.submitted_ns, default=None)
        looked_at = active or ((newest,) if newest is not None else ())
        self._read(driver, looked_at)
        now_ns = status.now_ns
        end_ns = now_ns if active else max((job.finished_ns or now_ns for job in looked_at), default=now_ns)
        names = {job.id for job in looked_at}
        return Frame(
            address=driver.address,
            status=status,
            watched=tuple(self._readers[job.id].watched(job) for job in looked_at),
            waiting=tuple(job for job in jobs if job.state not in FINAL_STATES and job.id not in names),
            pieces=tuple(self._pieces(status.nodes, end_ns - self._window_ns, now_ns)),
            staged=tuple(
                piece for reader in self._readers.values() for piece in reader.staged(end_ns - self._window_ns)
            ),
            start_ns=end_ns - self._window_ns,
            end_ns=end_ns,
            over=not active,
        )

    def _read(self, driver: Digend, jobs: Sequence[JobView]) -> None:
        for job in jobs:
            if job.id not in self._readers:
                self._readers[job.id] = Reader(max(driver.job(job.id).num_records - TAIL, 0))
            self._readers[job.id].read(driver, job.id)
        self._readers = {job.id: self._readers[job.id] for job in jobs}

    def _pieces(self, nodes: Sequence[NodeView], start_ns: int, now_ns: int) -> list[Piece]:
        """What records tell, and what still goes on."""
        told = [piece for reader in self._readers.values() for piece in reader.pieces(start_ns)]
        goes_on = [piece for node in nodes if (piece := open_piece(node, now_ns)) is not None]
        return sorted((*told, *goes_on), key=lambda piece: piece.start)


def open_piece(node: NodeView, now_ns: int) -> Piece | None:
    """What a worker is at now, of which there is no record yet."""
    if node.for_s is None or not (node.task or node.cause):
        return None
    since_ns = now_ns - round(node.for_s * 1e9)
    if node.task:
        return Piece(node.name, _KINDS.get(node.task, node.task), since_ns, now_ns)
    return Piece(node.name, "bubble" if node.bubble else "idle", since_ns, now_ns, node.cause if node.bubble else "")
