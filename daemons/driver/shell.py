"""The driver daemon around the decision core: messages in, events to the core, journal, commands out.

One TaskGroup: the reader takes batches off the socket and makes a turn of each, the turns take what comes from
elsewhere (timers, checked submissions), the disk watch looks for room. A turn: step, journal, and only then release
commands and acknowledgements, before anything else is done with them. Decides nothing.

Invariant: no command and no acknowledgement of a turn leaves before it is on disk. While the journal has
no room the clock stands still, nothing is stepped, and nothing new is taken.
"""

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import get_args

from broker.commands import WakeAt, Write
from broker.core import Core
from broker.events import Event, LimitsChanged, Tick, WorkerGone
from broker.state import Lease
from daemons.driver import snapshots
from daemons.driver.archive import Archive
from daemons.driver.asked import Change
from daemons.driver.clock import Clock
from daemons.driver.delivery import Delivery
from daemons.driver.desk import Checked, Desk
from daemons.driver.diary import enter
from daemons.driver.draft import Draft
from daemons.driver.faults import Faults
from daemons.driver.intake import FromWorker, Intake
from daemons.driver.journal import Journal, Turn
from daemons.driver.parents import Parents
from daemons.driver.place import Place
from daemons.driver.queries import Queries, Query
from daemons.driver.room import Room
from daemons.driver.schema import JournalFull
from daemons.driver.sessions import Session, Sessions
from daemons.driver.stream import RecordStream
from daemons.driver.submission import Refusal, Register, prepare
from daemons.driver.summaries import Summaries
from daemons.driver.uploads import Uploads
from daemons.driver.words import in_words
from daemons.metrics.driver import DriverMetrics
from daemons.notify import Notifier
from digend.config.node import TimingConfig
from digend.exitcodes import ExitCode
from digend.net.server import ControlServer, Fault
from digend.telemetry.logs import logger
from digend.wire.errors import TooLarge
from digend.wire.replies import ErrorReply
from digend.wire.requests import Submit, Upload
from digend.wire.views import StatusView
from digend.wire.workers import Records, Welcome

RETRY_S = 1.0
"""Between two looks at the disk, and two tries to write a turn that found no room."""

SNAPSHOT_BATCHES = 5_000
"""A restart steps through so many batches at most."""

STATUS_S = 2.0
"""Between two looks at what a service manager is told."""

_QUERIES = get_args(Query)
_CHANGES = get_args(Change)
_WORKERS = get_args(FromWorker)
_BOOKS = (WakeAt, Write)


class Driver:
    """Made with a core that has been brought up to date from `journal`; `started` is what the core is told first."""

    def __init__(
        self,
        *,
        core: Core,
        summaries: Summaries,
        journal: Journal,
        server: ControlServer,
        clock: Clock,
        room: Room,
        uploads: Uploads,
        register: Register,
        heartbeat_s: float,
        started: Event,
        notifier: Notifier | None = None,
        place: Place,
        metrics: DriverMetrics | None = None,
    ) -> None:
        archive = Archive(journal)
        self._core = core
        self._summaries = summaries
        self._journal = journal
        self._server = server
        self._clock = clock
        self._room = room
        self._uploads = uploads
        self._heartbeat_s = heartbeat_s
        self._configs = {row.id: row.toml for row in archive.jobs()}
        self._sessions = Sessions(journal.epoch, encrypted=server.encrypted)
        server.limit(self._sessions.role_of)
        self._stream = RecordStream(archive, self._configs, self._send_records)
        self._intake = Intake(
            self._sessions,
            self._stream,
            self._welcome,
            lambda job: core.has_job(job) is not None,
            self._send,
            server.grant,
            server.trusts,
        )
        self._queries = Queries(
            core,
            summaries,
            archive,
            clock.now_ns(),
            self._problems,
            place,
            self._sessions,
            server.turned_away,
            lambda: room.held,
        )
        self._parents = Parents(core, archive, self._queries.detail)
        self._desk = Desk(core, self._queries, register, uploads, lambda: room.reason, self._send)
        self._delivery = Delivery(self._sessions, server, self._close, self._lost, self._add)
        self._faults = Faults()
        self._notifier = notifier or Notifier({})
        self._metrics = metrics
        self._draft = Draft(events=[started])
        self._stuck: tuple[Turn, Draft] | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_ns = 0
        self._num_batches = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; what was taken by then is journalled. Raises what ends the driver."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks = [
                group.create_task(self._read(), name="reader"),
                group.create_task(self._turns(), name="turns"),
                group.create_task(self._watch_disk(), name="disk watch"),
                group.create_task(self._notifier.keep_alive(), name="signs of life"),
                group.create_task(self._tell_status(), name="status"),
            ]
            if self._metrics is not None:
                watching = self._metrics.watch(self._look, self._leases, self._server.waiting_bytes)
                tasks.append(group.create_task(watching, name="metrics"))
            await stop.wait()
            self._notifier.stopping("writing the journal")
            for task in tasks:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._turn()

    def set_timing(self, timing: TimingConfig) -> None:
        """Other limits for silent workers from now on; another pace of heartbeats for new sessions."""
        self._heartbeat_s = timing.heartbeat_s
        limits = LimitsChanged(torpid_s=timing.torpid_s, lost_s=timing.lost_s, rejoin_s=timing.rejoin_s)
        self._add(limits)

    async def _tell_status(self) -> None:
        self._notifier.ready(self._in_words())
        while True:
            await asyncio.sleep(STATUS_S)
            self._notifier.status(self._in_words())

    def _in_words(self) -> str:
        return self._room.held or in_words(self._look())

    def _look(self) -> StatusView:
        return self._queries.status(self._clock.now_ns())

    def _leases(self) -> Iterable[Lease]:
        return self._core.state.leases.values()

    # ------------------------------------------------------------------------------------------------- gather

    async def _read(self) -> None:
        async for batch in self._server.batches():
            for peer, message in batch:
                self._take(peer, message)
            self._turn()  # at once: another task to do it would cost two rounds of the loop
            await asyncio.sleep(0)

    def _take(self, peer: bytes, message: object) -> None:
        now_ns = self._clock.now_ns()
        if isinstance(message, Fault):
            reply = self._faults.reply(message, now_ns)
            if reply is not None:
                self._send(peer, reply)
        elif isinstance(message, _WORKERS):
            self._intake.take(peer, message, self._draft, now_ns)
        elif isinstance(message, Submit):
            self._group.create_task(self._check(peer, message), name=f"check submit {message.request}")
        elif isinstance(message, Upload):
            self._desk.upload(peer, message)
        elif isinstance(message, _CHANGES):
            self._change(peer, message)
        elif isinstance(message, _QUERIES):
            self._ask(peer, message)

    def _ask(self, peer: bytes, query: Query) -> None:
        """After the turn that what came before it is in; at once where turns stand still."""
        if self._room.held:
            self._desk.query(peer, query, self._clock.now_ns())
        else:
            self._draft.looks.append(lambda: self._desk.query(peer, query, self._clock.now_ns()))

    def _change(self, peer: bytes, asked: Change) -> None:
        """A dry run says what would be after all that came before it."""
        now_ns = self._clock.now_ns()
        if asked.dry_run and not self._room.held:
            self._draft.looks.append(lambda: self._desk.change(peer, asked, self._draft, now_ns))
        else:
            self._desk.change(peer, asked, self._draft, now_ns)

    async def _check(self, peer: bytes, submit: Submit) -> None:
        try:
            parent = self._parents.find(submit.fork) if submit.fork else None
            checked = Checked(peer, submit, await asyncio.to_thread(prepare, submit, self._uploads, parent))
        except Refusal as refusal:
            checked = Checked(peer, submit, refusal)
        except Exception as error:  # a plug-in's spec may raise anything; it is no reason to end
            logger().exception("a job could not be checked")
            why = f"the job could not be checked: {type(error).__name__}: {error} (the driver's log has where)"
            checked = Checked(peer, submit, Refusal(ExitCode.TARGET_FAILED, why))
        self._desk.submit(checked, self._draft, self._clock.now_ns())
        self._wanted.set()

    async def _watch_disk(self) -> None:
        while True:
            event = self._room.look()
            if event is not None:
                logger().warning("disk", full=event.full, reason=event.reason)
                self._draft.add(event)
            if event is not None or self._stuck is not None:
                self._wanted.set()
            await asyncio.sleep(RETRY_S)

    # ------------------------------------------------------------------------------------------- step, journal

    async def _turns(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._turn()
            await asyncio.sleep(0)

    def _turn(self) -> None:
        if self._stuck is not None and not self._write(*self._stuck):
            return
        draft, self._draft = self._draft, Draft()
        if draft.empty:
            self._reply(draft)
            return
        now_ns = self._clock.now_ns()
        events = tuple(draft.events)
        begun = perf_counter()
        commands = tuple(self._core.step(now_ns, events)) if events else ()
        if self._metrics is not None and events:
            self._metrics.stepped(perf_counter() - begun, commands)
        turn = Turn(
            now_ns=now_ns,
            events=events,
            commands=commands,
            jobs=tuple(draft.jobs),
            persisted=tuple(draft.persisted.items()),
        )
        self._write(turn, draft)

    def _write(self, turn: Turn, draft: Draft) -> bool:
        """Journals and releases a turn; False where there is no room, and the turn is kept for another try."""
        begun = perf_counter()
        try:
            self._journal.commit(turn)
        except JournalFull as error:
            if self._stuck is None:
                self._clock.hold()
                logger().error("held: the journal has no room", error=str(error))
            self._stuck = (turn, draft)
            self._room.held = f"the journal has no room: {error}"
            draft.look()
            return False
        if self._metrics is not None:
            self._metrics.committed(perf_counter() - begun)
        if self._stuck is not None:
            self._stuck = None
            self._room.held = ""
            self._clock.resume()
            logger().info("going on: the journal has room again")
        self._configs.update({row.id: row.toml for row in turn.jobs})
        self._release(turn)
        self._reply(draft)
        self._num_batches += bool(turn.events)
        if self._num_batches >= SNAPSHOT_BATCHES:
            self._keep_snapshot()
        return True

    def _keep_snapshot(self) -> None:
        """So that a restart has no more to step through than the batches from here on. The driver does not depend on
        it."""
        self._num_batches = 0
        begun = perf_counter()
        try:
            self._journal.keep(snapshots.taken(self._core, self._summaries))
        except (JournalFull, TypeError) as error:
            logger().warning("no snapshot: a restart takes longer", error=str(error))
        else:
            logger().debug("snapshot", seconds=round(perf_counter() - begun, 3))

    # ------------------------------------------------------------------------------------------------ release

    def _release(self, turn: Turn) -> None:
        """What somebody waits for first, then the books."""
        addressed, books = [], []
        for command, fields in zip(turn.commands, turn.fields, strict=True):
            if isinstance(command, _BOOKS):
                books.append(command)
            else:
                addressed.append((command, fields))
        self._delivery.deliver(addressed)
        for command in books:
            self._enter(command)

    def _enter(self, command: WakeAt | Write) -> None:
        if isinstance(command, WakeAt):
            self._wake_at(command.at_ns)
            return
        self._stream.appended(command.record)
        self._summaries.add(command.record)
        enter(command.record)
        if self._metrics is not None:
            self._metrics.record(command.record)

    def _reply(self, draft: Draft) -> None:
        for reply in draft.after:
            reply()
        draft.look()
        self._stream.pump()

    def _add(self, event: Event) -> None:
        """For the next turn."""
        self._draft.add(event)
        self._wanted.set()

    def _lost(self, session: Session) -> None:
        logger().warning("worker unreachable", worker=session.hello.name, session=session.id)
        self._close(session)
        self._add(WorkerGone(session=session.id, reason="its connection takes no messages"))

    def _close(self, session: Session) -> None:
        self._sessions.close(session.id)
        self._stream.detach(session.id)
        self._server.forget(session.peer)

    def _wake_at(self, at_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ns = at_ns
        # A millisecond late rather than early: the core does not ask again for a deadline that is still ahead.
        delay_s = max(0, at_ns - self._clock.now_ns()) / 1e9 + 0.001
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        if self._clock.now_ns() < self._wake_ns:  # the clock stood still meanwhile
            self._wake_at(self._wake_ns)
            return
        self._add(Tick())

    # ------------------------------------------------------------------------------------------------ sending

    def _send(self, peer: bytes, message: object) -> None:
        """To a client, or what a worker is told outside of turns: a peer that is gone is no loss."""
        try:
            self._server.send(peer, message)
        except TooLarge as error:
            request = getattr(message, "request", None)
            if request is not None:
                self._server.send(peer, ErrorReply(request=request, code=1, message=f"the reply: {error}"))

    def _send_records(self, session: str, message: Records) -> None:
        found = self._sessions.get(session)
        if found is None or not self._server.send(found.peer, message):
            self._stream.detach(session)
            if found is not None:
                self._lost(found)

    def _welcome(self, session: str) -> Welcome:
        return Welcome(session=session, epoch=self._journal.epoch, heartbeat_s=self._heartbeat_s)

    def _problems(self) -> tuple[str, ...]:
        own = (self._room.reason,) if self._room.reason else ()
        return own + self._sessions.problems()
