"""`Core.step(now, events) -> commands`: the one machine that decides. All events of an instant, then one dispatch pass.

The driver daemon, the virtual-time harness and replay run this same object; nothing but `now` and the events moves it.
"""

from collections.abc import Callable, Sequence

from broker import asked, outcomes, ranks, sessions, staging
from broker.commands import Command
from broker.dispatch import dispatch
from broker.draining import unneeded_embeddings
from broker.events import (
    CancelRequested,
    DiskState,
    DrainRequested,
    DriverStarted,
    Event,
    JobSubmitted,
    LimitsChanged,
    PauseRequested,
    PriorityRequested,
    RankBroke,
    RankReady,
    RecordsPersisted,
    ResumeRequested,
    StoreReady,
    TaskBroke,
    TaskFinished,
    Tick,
    UndrainRequested,
    WeightsNotStaged,
    WeightsStaged,
    WorkerBeat,
    WorkerGone,
    WorkerHello,
)
from broker.lifecycle import advance, retire, set_state, start
from broker.losses import discard_unreachable, forget_conditions, give_up_ranks, lose_worker
from broker.order import look
from broker.spec import JobSpec
from broker.state import SECOND, Job, State
from broker.stopping import leave
from digend.wire.records import WorkerState


class Core:
    """See the module. `state` may be read by views; only `step` changes it."""

    def __init__(self) -> None:
        self.state = State()

    def step(self, now_ns: int, events: Sequence[Event]) -> list[Command]:
        """Apply `events` at `now_ns` (never before the last step's), dispatch, and return what is to be done."""
        state = self.state
        late_ns = max(0, now_ns - state.wake_at) if state.wake_at is not None else 0
        state.now = max(state.now, now_ns)
        state.out, state.told, state.unsure = [], {}, state.told
        for event in events:
            _APPLY[type(event)](state, event)
        sessions.expire(state, late_ns)
        self._settle()
        sessions.wake(state)
        commands, state.out = state.out, []
        return commands

    def _settle(self) -> None:
        """Advance and dispatch until nothing moves; a job that ends makes room for others."""
        state = self.state
        _start_jobs(state)
        while any([_move(state, job) for job in state.active()]):
            _start_jobs(state)
        _start_jobs(state)

    def has_job(self, job: str) -> JobSpec | None:
        """The spec under this id, open or ended."""
        found = self.state.jobs.get(job)
        return found.spec if found else None


def _move(state: State, job: Job) -> bool:
    """Bring a job as far as it goes now; whether it may go on from there at once."""
    before = (job.state, job.global_step, job.evaluation is None, len(job.rollout))
    if not job.active or leave(state, job):
        return True
    discard_unreachable(state, job)
    forget_conditions(state, job, unneeded_embeddings(state, job))
    advance(state, job)
    if job.active:
        dispatch(state, job)
        retire(state, job)
    return before != (job.state, job.global_step, job.evaluation is None, len(job.rollout))


def _start_jobs(state: State) -> None:
    """Give workers to every queued job whose turn it is, and the others the reason why not."""
    while True:
        job, reasons = look(state)
        for name, reason in reasons.items():
            set_state(state, state.jobs[name], "queued", reason)
        if job is None:
            return
        start(state, job)


def _gone(state: State, event: WorkerGone) -> None:
    worker = state.by_session(event.session)
    if worker is not None:
        lose_worker(state, worker, event.reason, event.left)


def _beat(state: State, event: WorkerBeat) -> None:
    worker = state.by_session(event.session)
    if worker is not None:
        worker.full, worker.problem = event.full, event.problem
        sessions.beat(state, worker, event.lease, event.done, event.device)


def _finished(state: State, event: TaskFinished) -> None:
    worker = state.by_session(event.session)
    if worker is not None:
        worker.beat_ns = state.now
        outcomes.finished(state, worker, event.lease, event.result, event.receipt)


def _broke(state: State, event: TaskBroke) -> None:
    worker = state.by_session(event.session)
    if worker is not None:
        worker.beat_ns = state.now
        outcomes.broke(state, worker, event.lease, event.error, event.receipt)


def _rank_broke(state: State, event: RankBroke) -> None:
    broken = ranks.failed(state, event)
    if broken is not None:
        give_up_ranks(state, *broken)


def _started(state: State, event: DriverStarted) -> None:
    _limits(state, event)
    state.drains.update({drain.target: drain for drain in event.drains})
    state.usage.update(event.usage)
    sessions.driver_started(state, event.epoch)


def _limits(state: State, event: DriverStarted | LimitsChanged) -> None:
    state.torpid_ns = int(event.torpid_s * SECOND)
    state.lost_ns = int(event.lost_s * SECOND)
    state.rejoin_ns = int(event.rejoin_s * SECOND)


def _disk(state: State, event: DiskState) -> None:
    state.disk_full = event.reason if event.full else ""
    for job in state.active():
        what = "disk full" if event.full else "disk has room again"
        state.record(job, WorkerState(worker="driver", role="driver", state=what, reason=event.reason))


_APPLY: dict[type, Callable[..., None]] = {
    Tick: lambda state, event: None,
    DriverStarted: _started,
    LimitsChanged: _limits,
    JobSubmitted: asked.submitted,
    CancelRequested: asked.cancelled,
    PauseRequested: asked.paused,
    ResumeRequested: asked.resumed,
    PriorityRequested: asked.reprioritised,
    DrainRequested: asked.drained,
    UndrainRequested: asked.undrained,
    WorkerHello: lambda state, event: sessions.hello(state, event.session, event.hello),
    WorkerGone: _gone,
    WorkerBeat: _beat,
    TaskFinished: _finished,
    TaskBroke: _broke,
    WeightsStaged: staging.staged,
    WeightsNotStaged: staging.not_staged,
    StoreReady: ranks.opened,
    RankReady: ranks.joined,
    RankBroke: _rank_broke,
    RecordsPersisted: lambda state, event: sessions.persisted(state, event.job, event.next_seq),
    DiskState: _disk,
}
