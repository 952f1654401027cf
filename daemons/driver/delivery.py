"""A turn's commands on their way to workers: all that one worker is told goes to it as one message of ZeroMQ.

Owns who is told what of a turn, and what becomes of it where it cannot be sent. Must not know the journal: it is called
once the turn is on disk. Invariant: a worker gets its commands in the order in which the core gave them, and none after
an eviction.
"""

from collections.abc import Callable, Iterable

from broker.commands import Evict, SendTask
from broker.events import Event, TaskBroke
from daemons.driver import outbox
from daemons.driver.sessions import Session, Sessions
from digend.net.server import ControlServer
from digend.telemetry.logs import logger
from digend.wire.errors import TooLarge
from digend.wire.tasks import Receipt, TaskError


class Delivery:
    """`close(session)` is told of whom nothing more is sent to, `lost(session)` of whose connection takes nothing,
    `add(event)` what the core has to know of a task that cannot be sent.
    """

    def __init__(
        self,
        sessions: Sessions,
        server: ControlServer,
        close: Callable[[Session], None],
        lost: Callable[[Session], None],
        add: Callable[[Event], None],
    ) -> None:
        self._sessions = sessions
        self._server = server
        self._close = close
        self._lost = lost
        self._add = add

    def deliver(self, commands: Iterable[tuple[outbox.Addressed, bytes]]) -> None:
        """(command, `packing.fields_of` it), in order."""
        told: dict[str, list[bytes]] = {}
        evicted: dict[str, Evict] = {}
        for command, fields in commands:
            if command.session in evicted:
                continue
            if isinstance(command, Evict):
                evicted[command.session] = command
            try:
                told.setdefault(command.session, []).append(outbox.framed(command, fields))
            except TooLarge as error:
                self._undeliverable(command, error)
        for name, frames in told.items():
            session = self._sessions.get(name)
            if session is not None:
                self._tell(session, frames, evicted.get(name))

    def _tell(self, session: Session, frames: list[bytes], evicted: Evict | None) -> None:
        sent = not frames or self._server.send_frames(session.peer, frames)
        if evicted is not None:
            logger().warning("worker refused", worker=session.hello.name, session=session.id, reason=evicted.reason)
            self._close(session)
        elif not sent:
            self._lost(session)

    def _undeliverable(self, command: outbox.Addressed, error: TooLarge) -> None:
        logger().error("a message is too large to send", what=type(command).__name__, error=str(error))
        if isinstance(command, SendTask):
            why = TaskError(reason="internal", message=f"the task is too large: {error}", retry=False)
            receipt = Receipt(total_ns=0, stages=())
            self._add(TaskBroke(session=command.session, lease=command.lease, error=why, receipt=receipt))
