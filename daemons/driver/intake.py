"""Messages of workers and the recorder as events for the core.

Owns the hand-shake and the check of sessions. Must not know what the core makes of an event. Invariant:
whoever speaks without a live session is told so, never fatally, and says HELLO again.
"""

import time
from collections.abc import Callable

from broker.events import (
    Event,
    RankBroke,
    RankReady,
    RecordsPersisted,
    StoreReady,
    TaskBroke,
    TaskFinished,
    WeightsNotStaged,
    WeightsStaged,
    WorkerBeat,
    WorkerGone,
    WorkerHello,
)
from daemons.driver.draft import Draft
from daemons.driver.sessions import Session, Sessions
from daemons.driver.stream import RecordStream
from daemons.driver.words import in_the_clear
from digend import __version__
from digend.net.addresses import host_of
from digend.net.security import Grant
from digend.telemetry.logs import logger
from digend.wire.protocol import Refused
from digend.wire.workers import (
    Goodbye,
    Heartbeat,
    HeartbeatAck,
    Hello,
    RankFailed,
    RankJoined,
    RecordsWritten,
    Staged,
    StageFailed,
    StoreOpened,
    TaskDone,
    TaskFailed,
    Welcome,
)

Telling = TaskDone | TaskFailed | Staged | StageFailed | StoreOpened | RankJoined | RankFailed | Goodbye
"""What an event is made of as it stands."""
InSession = Heartbeat | Telling | RecordsWritten
FromWorker = Hello | InSession
Reply = Welcome | Refused | HeartbeatAck

UNKNOWN = Refused(reason="unknown session")


class Intake:
    """`send(peer, message)` is for what need not wait for the journal: no decision is in it. `grant(peer)` is what the
    list says of the key that a message came with; None without keys. `trusts(host)`: whether tensors may be clear
    there.
    """

    def __init__(
        self,
        sessions: Sessions,
        stream: RecordStream,
        welcome: Callable[[str], Welcome],
        has_job: Callable[[str], bool],
        send: Callable[[bytes, Reply], None],
        grant: Callable[[bytes], Grant | None],
        trusts: Callable[[str], bool],
    ) -> None:
        self._sessions = sessions
        self._stream = stream
        self._welcome = welcome
        self._has_job = has_job
        self._send = send
        self._grant = grant
        self._trusts = trusts

    def take(self, peer: bytes, message: FromWorker, draft: Draft, now_ns: int) -> None:
        """Adds to the draft what the message means."""
        if isinstance(message, Hello):
            self._hello(peer, message, draft)
            return
        grant = self._grant(peer)
        session = self._sessions.get(message.session, peer, grant.public if grant else "")
        if session is None:
            self._send(peer, UNKNOWN)
        elif isinstance(message, Heartbeat):
            self._beat(session, message, draft, now_ns)
        elif isinstance(message, RecordsWritten):
            self._written(message, draft)
        else:
            draft.add(event(message))
            if isinstance(message, Goodbye):
                self._sessions.close(session.id)
                self._stream.detach(session.id)

    def _hello(self, peer: bytes, hello: Hello, draft: Draft) -> None:
        grant = self._grant(peer)
        reason = (claims_too_much(hello, grant) or self._bares_too_much(hello)) if grant else ""
        theirs = hello.versions.digend
        if not reason and theirs != __version__:
            reason = f"{hello.name} runs digend {theirs}, the driver {__version__}: install the same on both"
        if reason:
            self._send(peer, Refused(reason=reason, fatal=True))
            logger().warning("worker refused", worker=hello.name, reason=reason)
            return
        session, earlier = self._sessions.open(peer, hello, grant.public if grant else "")
        if earlier is not None:
            self._replaced(earlier, hello)
        self._send(peer, self._welcome(session.id))
        logger().info("worker joined", worker=hello.name, session=session.id, device=hello.device)
        draft.add(WorkerHello(session=session.id, hello=hello))
        if hello.role == "recorder":
            self._stream.attach(session.id, hello.written)

    def _bares_too_much(self, hello: Hello) -> str:
        """Why a worker's tensors must not go in the clear; "" where they do not, or may."""
        if not in_the_clear(hello) or self._trusts(host_of(hello.data)):
            return ""
        return (
            f"{hello.name} serves tensors in the clear at {hello.data}, which is not in keys.trusted_fabric of the "
            "driver's box: set it in the settings of all boxes, or of none"
        )

    def _replaced(self, earlier: Session, hello: Hello) -> None:
        """The core sees from name and instance what became of the earlier life; a process that lives on must end.

        Were it told softly, it would say HELLO again and the two would take the name from each other for
        ever.
        """
        self._stream.detach(earlier.id)
        if earlier.hello.instance != hello.instance:
            reason = f"process {hello.pid} on {hello.node} took over the name {hello.name}"
            self._send(earlier.peer, Refused(reason=reason, fatal=True))

    def _beat(self, session: Session, beat: Heartbeat, draft: Draft, now_ns: int) -> None:
        self._send(session.peer, HeartbeatAck(session=session.id, seq=beat.seq))
        session.problem = beat.problem
        session.held_bytes, session.spooled_bytes = beat.held_bytes, beat.spooled_bytes
        session.memory_limit_bytes, session.spool_limit_bytes = beat.memory_limit_bytes, beat.spool_limit_bytes
        if beat.wall_ns:
            session.clock_ahead_s = (beat.wall_ns - time.time_ns()) / 1e9
        if self._sessions.worth_an_event(session, beat, now_ns):
            draft.add(
                WorkerBeat(
                    session=session.id,
                    lease=beat.lease,
                    done=beat.done,
                    device=beat.device,
                    full=beat.full,
                    problem=beat.problem,
                )
            )

    def _written(self, message: RecordsWritten, draft: Draft) -> None:
        self._stream.written(message.session, message.job, message.next_seq)
        draft.persisted[message.job] = message.next_seq
        if self._has_job(message.job):
            draft.add(RecordsPersisted(job=message.job, next_seq=message.next_seq))


def claims_too_much(hello: Hello, grant: Grant) -> str:
    """Why a HELLO cannot come from who has the key; "" where it can."""
    if hello.node != grant.name or not hello.name.startswith(f"{hello.node}/{hello.role}/"):
        return (
            f"{hello.name} of node {hello.node} came with the key of {grant.name}: `name` in keys.toml and the node "
            "file must be the same"
        )
    if hello.role not in grant.roles:
        return f"the key of {grant} is not listed for a {hello.role}: add the role to it in keys.toml"
    return ""


def event(message: Telling) -> Event:
    """The event of a message that changes something."""
    session = message.session
    match message:
        case TaskDone(lease=lease, result=result, receipt=receipt):
            return TaskFinished(session=session, lease=lease, result=result, receipt=receipt)
        case TaskFailed(lease=lease, error=error, receipt=receipt):
            return TaskBroke(session=session, lease=lease, error=error, receipt=receipt)
        case Staged() as staged:
            return WeightsStaged(
                session=session,
                job=staged.job,
                incarnation=staged.incarnation,
                version=staged.version,
                num_bound=staged.num_bound,
                pull_ns=staged.pull_ns,
                check_ns=staged.check_ns,
                by=staged.by,
                fell_back=staged.fell_back,
            )
        case StageFailed(job=job, incarnation=incarnation, version=version, error=error):
            return WeightsNotStaged(session=session, job=job, incarnation=incarnation, version=version, error=error)
        case StoreOpened(job=job, epoch=epoch, store=store):
            return StoreReady(session=session, job=job, epoch=epoch, store=store)
        case RankJoined(job=job, epoch=epoch):
            return RankReady(session=session, job=job, epoch=epoch)
        case RankFailed(job=job, epoch=epoch, error=error):
            return RankBroke(session=session, job=job, epoch=epoch, error=error)
        case Goodbye(reason=reason):
            return WorkerGone(session=session, reason=reason, left=True)
