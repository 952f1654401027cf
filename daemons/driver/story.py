"""What became of one thing, read off the journal: events and commands in, transitions out.

Owns which of them concern a job, worker, micro-batch, sample, lease or policy version. Must not know SQLite or who
asks. Invariant: all that it remembers is in its cursor, so that reading on from a cursor tells the same as reading at
once; and that cursor has only what is live: open sessions, open leases of the thing.
"""

from collections.abc import Iterator
from dataclasses import replace

from broker import commands as c
from broker import events as e
from daemons.driver.rank_words import of_ranks
from daemons.driver.record_words import LOST, of_record, told
from daemons.driver.task_words import concerns, has_sample, name_of, result_of, told_to_stage, why
from digend.wire.records import IdleRecord, Record
from digend.wire.story import OpenLease, StoryCursor, Transition
from digend.wire.subjects import Subject
from digend.wire.tasks import (
    CommitResult,
    CommitTask,
    GenerateResult,
    ResultBody,
    SampleScore,
    ScoreResult,
    TaskBody,
    UpdateTask,
)
from digend.wire.workers import Hello

Item = e.Event | c.Command

MAX_TEXT = 600
"""Characters of one text: an error's message may be long, and a page holds many."""

CLOSED = -2
"""Global step of a micro-batch whose commit was told: it is over, unless it is made again."""

SESSIONS = (e.DriverStarted, e.WorkerHello, e.WorkerGone, c.Evict)
"""What says who the workers are."""

READ = (
    *SESSIONS,
    e.JobSubmitted,
    e.CancelRequested,
    e.PauseRequested,
    e.ResumeRequested,
    e.PriorityRequested,
    e.DrainRequested,
    e.UndrainRequested,
    e.WorkerBeat,
    e.TaskFinished,
    e.TaskBroke,
    e.WeightsStaged,
    e.WeightsNotStaged,
    e.StoreReady,
    e.RankReady,
    e.RankBroke,
    e.DiskState,
    c.AskStore,
    c.AskJoin,
    c.AskLeave,
    c.SendTask,
    c.RevokeLease,
    c.StageWeights,
    c.RetireVersions,
    c.Write,
)
"""What a story is told from; the rest of a batch need not be decoded."""


class Story:
    """Of one subject. `resume` from a cursor, `take` items in order, `cursor` to go on later."""

    def __init__(self, subject: Subject, cursor: StoryCursor) -> None:
        self._subject = subject
        self._sessions = dict(cursor.sessions)
        self._leases = dict(cursor.leases)
        self._global_step = cursor.global_step

    def cursor(self, record: int, batch: int) -> StoryCursor:
        return StoryCursor(
            record=record,
            batch=batch,
            sessions=dict(self._sessions),
            leases=dict(self._leases),
            global_step=self._global_step,
        )

    def take(self, at_ns: int, item: Item) -> Iterator[Transition]:
        """Transitions of the subject that an item of the journal is."""
        for each in self._told(at_ns, item):
            yield replace(each, at_ns=at_ns, what=each.what[:MAX_TEXT], cause=each.cause[:MAX_TEXT])

    def _told(self, at_ns: int, item: Item) -> Iterator[Transition]:
        match item:
            case e.DriverStarted(epoch=epoch):
                yield from self._driver_started(epoch)
            case e.WorkerHello(session=session, hello=hello):
                yield from self._hello(session, hello)
            case e.WorkerGone(session=session, reason=reason):
                yield from self._session_over(at_ns, session, "left", reason)
            case c.Evict(session=session, reason=reason):
                yield from self._session_over(at_ns, session, "evicted", reason)
            case e.WorkerBeat(lease=str(lease), done=done):
                self._progress(at_ns, lease, done)
            case c.SendTask():
                yield from self._granted(item)
            case e.TaskFinished():
                yield from self._finished(item)
            case e.TaskBroke(lease=lease, error=error):
                again = "may be tried again" if error.retry else "is not tried again"
                yield from self._ended(lease, f"failed ({error.reason}), {again}", error.message)
            case c.RevokeLease(lease=lease, reason=reason):
                yield from self._ended(lease, "revoked", reason + self._last_progress(at_ns, lease))
            case c.StageWeights(session=session, weights=weights):
                if self._stages(session, weights.job, weights.version):
                    yield self._of(session, *told_to_stage(item))
            case e.WeightsStaged(session=session, job=job, version=version):
                if self._stages(session, job, version):
                    yield self._of(session, f"version {version} staged", f"all {item.num_bound} tensors are bound")
            case e.WeightsNotStaged(session=session, job=job, version=version, error=error):
                if self._stages(session, job, version):
                    yield self._of(session, f"version {version} not staged ({error.reason})", error.message)
            case c.RetireVersions(session=session, job=job, oldest_version=oldest):
                if oldest > 0 and self._stages(session, job, self._subject.version) and self._subject.version < oldest:
                    what = f"versions below {oldest} may go"
                    yield self._of(session, what, "no open micro-batch names one of them")
            case c.AskStore() | c.AskJoin() | c.AskLeave() | e.StoreReady() | e.RankReady() | e.RankBroke():
                if self._is_worker(item.session):
                    yield self._of(item.session, *of_ranks(item))
            case e.DiskState(full=full, reason=reason) if self._subject.kind == "job":
                yield told("no tasks are given out" if full else "tasks are given out again", reason)
            case c.Write(record=record):
                yield from self._forfeited(record)
                yield from of_record(record, self._subject, begun=self._global_step >= 0, alone=False)
            case _:
                yield from self._requested(item)

    def _requested(self, item: Item) -> Iterator[Transition]:
        """What clients asked for."""
        match item:
            case e.JobSubmitted(spec=spec) if self._is_job(spec.id):
                yield told(f"submitted: {spec.num_global_steps} global steps", _asked(item.user))
            case e.CancelRequested(job=job, after=after) if self._is_job(job):
                yield told("cancel taken" + ("" if after == "now" else f", after the {after}"), _asked(item.by))
            case e.PauseRequested(job=job) if self._is_job(job):
                yield told("pause taken", _asked(item.by, item.why))
            case e.ResumeRequested(job=job) if self._is_job(job):
                yield told("resume taken", _asked())
            case e.PriorityRequested(job=job, priority=priority) if self._is_job(job):
                yield told(f"priority {priority}", _asked())
            case e.DrainRequested(target=target) if self._drains(target):
                yield told(f"drain of {target} taken", _asked(item.by, item.why), self._subject.name)
            case e.UndrainRequested(target=target) if self._drains(target):
                yield told(f"undrain of {target} taken", _asked(), self._subject.name)

    # ------------------------------------------------------------------------------------------------ sessions

    def _driver_started(self, epoch: int) -> Iterator[Transition]:
        there = self._subject.kind == "job" or self._subject.name in self._sessions.values() or bool(self._leases)
        self._sessions.clear()
        if epoch > 1 and there:
            yield told(f"driver restarted, epoch {epoch}", "its process began anew; sessions are void until HELLO")

    def _hello(self, session: str, hello: Hello) -> Iterator[Transition]:
        self._sessions[session] = hello.name
        if self._is_worker(session):
            held = f", holding leases {', '.join(each.lease for each in hello.held)}" if hello.held else ""
            what = f"HELLO, session {session}: process {hello.pid} on {hello.device}{held}"
            yield told(what, f"instance {hello.instance}, digend {hello.versions.digend}", hello.name)
        for name, lease in self._leases.items():
            if lease.worker == hello.name and name in {each.lease for each in hello.held}:
                self._leases[name] = replace(lease, session=session)
                yield told("its worker is back with it", f"session {session}", hello.name, name)

    def _session_over(self, at_ns: int, session: str, what: str, reason: str) -> Iterator[Transition]:
        if self._is_worker(session):
            yield self._of(session, what, reason)
        for lease in [name for name, held in self._leases.items() if held.session == session]:
            yield from self._ended(lease, f"lost, its worker {what}", reason + self._last_progress(at_ns, lease))
        self._sessions.pop(session, None)

    # -------------------------------------------------------------------------------------------------- leases

    def _granted(self, sent: c.SendTask) -> Iterator[Transition]:
        task, worker = sent.task, self._sessions.get(sent.session, sent.session)
        if not self._is_about(sent.session, sent.lease, task):
            return
        self._leases[sent.lease] = OpenLease(worker=worker, session=sent.session, what=name_of(task).partition(":")[0])
        if not isinstance(task, CommitTask):
            self._global_step = getattr(task, "global_step", self._global_step)
        yield told(f"leased: {name_of(task)}", why(task, sent.attempt), worker, sent.lease)
        if self._subject.kind == "sample" and isinstance(task, UpdateTask):
            yield self._selected(task, worker, sent.lease)

    def _is_about(self, session: str, lease: str, task: TaskBody) -> bool:
        subject = self._subject
        if subject.kind == "worker":
            return self._is_worker(session)
        if subject.kind == "lease":
            return subject.name == lease
        if isinstance(task, CommitTask) and subject.kind in ("micro-batch", "sample"):
            mine = task.job == subject.job and task.global_step == self._global_step
            return mine and subject.micro_batch in task.micro_batches
        if subject.kind == "sample" and isinstance(task, UpdateTask) and self._global_step < 0:
            return False  # nobody was asked for this sample
        return concerns(task, subject)

    def _finished(self, done: e.TaskFinished) -> Iterator[Transition]:
        if done.lease in self._leases:
            yield from self._ended(done.lease, result_of(done.result, done.receipt), "")
            yield from self._scores(done.result, done.lease)
            if isinstance(done.result, CommitResult):
                self._global_step = CLOSED
        elif self._is_worker(done.session) or self._subject.name == done.lease:
            worker = self._sessions.get(done.session, "")
            yield told("a result came that does not count", "its lease had ended", worker, done.lease)

    def _ended(self, lease: str, what: str, cause: str) -> Iterator[Transition]:
        """Nothing is told of a lease that is none of the subject's, or over already."""
        held = self._leases.pop(lease, None)
        if held is not None:
            yield told(f"{held.what}: {what}", cause, held.worker, lease)

    def _scores(self, result: ResultBody, lease: str) -> Iterator[Transition]:
        if self._subject.kind != "sample" or not isinstance(result, ScoreResult | GenerateResult):
            return
        for score in result.scores:
            if (score.prompt, score.index) == (self._subject.prompt, self._subject.index):
                yield told(*_scored(score), lease=lease)

    def _selected(self, task: UpdateTask, worker: str, lease: str) -> Transition:
        if not has_sample(task, self._subject):
            return told("not trained on", "masked, of a dropped group, or not selected", worker, lease)
        item = next(
            each for each in task.items if (each.prompt, each.index) == (self._subject.prompt, self._subject.index)
        )
        steps = ", ".join(map(str, item.timesteps))
        return told(f"trained on at timesteps {steps}", f"advantage {item.advantage:.4g}", worker, lease)

    def _progress(self, at_ns: int, lease: str, done: int) -> None:
        held = self._leases.get(lease)
        if held is not None and done > held.done:
            self._leases[lease] = replace(held, done=done, progress_ns=at_ns)

    def _last_progress(self, at_ns: int, lease: str) -> str:
        held = self._leases.get(lease)
        if held is None or not held.progress_ns:
            return ""
        return f"; its last progress, {held.done} done, was {(at_ns - held.progress_ns) / 1e9:.1f} s before"

    def _forfeited(self, record: Record) -> Iterator[Transition]:
        """A lease that ended without a command, because its worker had no session to be told in."""
        body = record.body
        if isinstance(body, IdleRecord) and body.cause.startswith(LOST):
            for lease in [name for name, held in self._leases.items() if held.worker == body.worker]:
                yield from self._ended(lease, "lost", body.cause.partition(": ")[2])

    def _is_job(self, job: str) -> bool:
        return self._subject.kind == "job" and self._subject.job == job

    def _is_worker(self, session: str) -> bool:
        return self._subject.kind == "worker" and self._sessions.get(session) == self._subject.name

    def _drains(self, target: str) -> bool:
        """A drain names a worker, or the node of several."""
        name = self._subject.name
        return self._subject.kind == "worker" and (name == target or name.startswith(f"{target}/"))

    def _stages(self, session: str, job: str, version: int) -> bool:
        """Whether the staging of a version by a worker is of interest."""
        subject = self._subject
        mine = subject.kind == "policy version" and (subject.job, subject.version) == (job, version)
        return mine or self._is_worker(session)

    def _of(self, session: str, what: str, cause: str) -> Transition:
        return told(what, cause, self._sessions.get(session, ""))


def _asked(by: str = "", why: str = "") -> str:
    return f"{by or 'a client'} asked for it" + (f": {why}" if why else "")


def _scored(score: SampleScore) -> tuple[str, str]:
    if score.failure is not None:
        return "no reward", score.failure
    parts = ", ".join(f"{name} {value:.4g}" for name, value in sorted(score.components.items()))
    return "scored" if score.reward is None else f"reward {score.reward:.4g}", parts
