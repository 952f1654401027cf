"""What a worker tells the driver: HELLO, heartbeats, results, versions, goodbye.

Owns when each result was last told. Decides nothing. Invariant: nothing is sent without a session but HELLO, and a
result is told again, to whatever session there is, until `acknowledged`.
"""

import os
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from daemons.worker.blobs import BlobState
from daemons.worker.identity import Identity
from daemons.worker.leases import Outcome
from daemons.worker.session import Session
from daemons.worker.work import Progress, Work
from digend.telemetry.logs import logger
from digend.telemetry.waiting import waits_for
from digend.wire.devices import DeviceState
from digend.wire.errors import TooLarge
from digend.wire.tasks import TaskError
from digend.wire.workers import (
    Goodbye,
    Heartbeat,
    Hello,
    RankFailed,
    RankJoined,
    Staged,
    StageFailed,
    StoreOpened,
)

log = logger()


class Line(Protocol):
    """The worker's end of the control plane (`digend.net.link.Link`)."""

    @property
    def trouble(self) -> str:
        """Why no driver lets this process in, in words; empty where one does, or none is there."""
        ...

    async def connected(self) -> None: ...

    def send(self, message: object) -> bool: ...

    def messages(self) -> AsyncIterator[object]: ...


class Reports:
    """Used from the event loop only; times are handed in, in seconds."""

    def __init__(self, identity: Identity, link: Line, session: Session) -> None:
        self._identity = identity
        self._link = link
        self._session = session
        self._told_s: dict[str, float] = {}

    def hello(self, device: str, work: Work, ranks: dict[str, int]) -> None:
        who = self._identity
        self._link.send(
            Hello(
                role=who.role,
                name=who.name,
                node=who.node,
                instance=who.instance,
                pid=os.getpid(),
                data=who.data,
                device=device,
                versions=who.versions,
                held=work.leases.inventory(),
                prepared=work.prepared(),
                host=socket.gethostname(),
                interface=who.interface,
                ranks=ranks,
            )
        )

    def heartbeat(self, progress: Progress, device: DeviceState | None, blobs: BlobState) -> None:
        if self._session.id is not None:
            self._link.send(
                Heartbeat(
                    session=self._session.id,
                    seq=self._session.beat(),
                    lease=progress.lease,
                    done=progress.done,
                    total=progress.total,
                    resident_bytes=resident_bytes(),
                    device=device,
                    wall_ns=time.time_ns(),
                    problem="; ".join(filter(None, (blobs.trouble, waits_for()))),
                    held_bytes=blobs.held_bytes,
                    spooled_bytes=blobs.spooled_bytes,
                    memory_limit_bytes=blobs.memory_limit_bytes,
                    spool_limit_bytes=blobs.spool_limit_bytes,
                    full=blobs.full,
                )
            )

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """One that finds no session is told to the next one (`all_outcomes`)."""
        if self._session.id is None:
            return
        self._told_s[outcome.lease] = now_s
        try:
            self._link.send(outcome.message(self._session.id))
        except TooLarge as error:
            log.error("a result is too large to be told", lease=outcome.lease, error=str(error))
            why = TaskError(reason="internal", message=f"the result is too large: {error}", retry=False)
            self._link.send(replace(outcome, answer=why).message(self._session.id))

    def all_outcomes(self, outcomes: Iterable[Outcome], now_s: float, older_than_s: float = 0.0) -> None:
        """Those that were last told at least `older_than_s` ago."""
        for outcome in outcomes:
            if now_s - self._told_s.get(outcome.lease, float("-inf")) >= older_than_s:
                self.outcome(outcome, now_s)

    def acknowledged(self, lease: str) -> None:
        self._told_s.pop(lease, None)

    def news(self, news: Iterable[Staged | StageFailed | StoreOpened | RankJoined | RankFailed]) -> None:
        for item in news:
            self._link.send(item)

    def goodbye(self, reason: str) -> None:
        if self._session.id is not None:
            self._link.send(Goodbye(session=self._session.id, reason=reason))


def resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
