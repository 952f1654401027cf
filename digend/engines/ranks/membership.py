"""This process as one of a trainer's ranks: meeting, leading, following, leaving.

Owns the store that rank 0 serves, the peers and the commands between them. Must not know what a task does.

Invariants: after an error that left the ranks out of step this rank closes, so that the others hear of it, and asks
nothing of them until it has joined again. `leave` waits for nobody and may be called from another thread; what this
thread is in the middle of then ends within the ranks' deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from digend.engines.protocols import Context, TaskFault
from digend.engines.ranks.bundles import Blobs
from digend.engines.ranks.commands import Command, Commands
from digend.engines.ranks.handing import HandedContext
from digend.engines.ranks.peers import Alone, Peers
from digend.telemetry.logs import logger
from digend.wire.ranks import Ranks
from digend.wire.tasks import ResultBody, TaskBody

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from digend.engines.ranks.joined import Joined

Act = Callable[[TaskBody, Context], ResultBody]

IDLE_S = 30 * 24 * 3600.0
"""How long a rank waits for its next command: a job may be paused."""


class Membership:
    """`peers` is `Alone` until `join`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._store: TCPStore | None = None
        self._address = ""
        self._joined: Joined | None = None
        self._commands: Commands | None = None
        self._left = threading.Event()
        self._working = threading.Lock()
        self._lost = False

    @property
    def peers(self) -> Peers:
        """Raises TaskFault("rank_lost") from the loss of a rank until `leave` or `join`."""
        if self._lost and not self._left.is_set():
            raise TaskFault("rank_lost", "the ranks are no longer together")
        return Alone() if self._joined is None else self._joined

    def open_store(self, host: str) -> str:
        from digend.engines.ranks import store

        self._store = None
        self._store, self._address = store.serve(host)
        return self._address

    def join(self, ranks: Ranks) -> None:
        """Raises TaskFault("rank_lost") where not all of them come in time, or this rank is told to leave meanwhile."""
        if ranks.size % ranks.replicas:
            raise TaskFault("config", f"{ranks.replicas} replicas do not divide {ranks.size} ranks")
        with self._at_work():
            self._close()
            self._left.clear()
            self._lost = True
            self._joined = self._met(ranks)
            self._commands = Commands(self._joined)
            self._lost = False
        if self._left.is_set():
            raise TaskFault("rank_lost", f"rank {ranks.rank} was told to leave")

    def _met(self, ranks: Ranks) -> Joined:
        from digend.engines.ranks.joined import Joined, forget_failure
        from digend.engines.ranks.store import reach

        own = self._store if self._address == ranks.store else None
        if ranks.rank == 0 and own is None:
            raise TaskFault("internal", f"rank 0 serves no store at {ranks.store}")
        try:
            met = reach(ranks.store, ranks.timeout_s, self._left) if own is None else own
            return Joined(ranks, met, self._device, self._left)
        except (RuntimeError, ValueError, TaskFault) as error:
            forget_failure()
            who = f"rank {ranks.rank} of {ranks.size}"
            raise TaskFault("rank_lost", f"{who} has not met the others at {ranks.store}: {error}") from error

    def leave(self) -> None:
        if self._joined is not None and self._joined.rank == 0 and not self._left.is_set():
            self._tell(Command("leave"))
        self._left.set()
        self._close_if_left()

    def lead(self, task: TaskBody, context: Context, blobs: Blobs, act: Act) -> ResultBody:
        """Rank 0: do a task together with all others."""
        with self._at_work(), self._in_step() as (peers, commands):
            with context.stage("gather"):
                commands.give(Command("run", task, blobs=blobs))
            with peers.settled():
                return act(task, HandedContext(context, peers, blobs))

    def end(self, job: str) -> None:
        """Rank 0: the others unload a job too."""
        self._tell(Command("end", job=job))

    def follow(self, context: Context, act: Act, end: Callable[[str], None]) -> None:
        """The others: do what rank 0 says until it leaves. Raises TaskFault("rank_lost"), and Cancelled as the context
        does."""
        with self._at_work():
            while (command := self._next(context)).verb != "leave":
                if command.verb == "end":
                    end(command.job)
                elif command.task is not None:
                    self._obey(command.task, context, command.blobs or {}, act)

    def _next(self, context: Context) -> Command:
        with self._in_step() as (_, commands):
            return commands.take(IDLE_S, lambda: context.progress(0, 0))

    def _obey(self, task: TaskBody, context: Context, blobs: Blobs, act: Act) -> None:
        try:
            with self._in_step() as (peers, _), peers.settled():
                act(task, HandedContext(context, peers, blobs))
        except Exception as error:
            if self._joined is None:
                raise
            logger().info("a task of all ranks failed", task=task.kind, reason=str(error))

    def _tell(self, command: Command) -> None:
        """Where they cannot be told, they find out."""
        if self._joined is None or self._commands is None or not self._working.acquire(blocking=False):
            return
        try:
            self._commands.give(command)
        except RuntimeError as error:
            logger().info("the ranks could not be told", command=command.verb, reason=str(error))
            self._close()
        finally:
            self._working.release()
            self._close_if_left()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """While it lasts, `leave` from another thread only says so."""
        try:
            with self._working:
                yield
        finally:
            self._close_if_left()

    def _close_if_left(self) -> None:
        """Of `leave` and what it came upon, whichever is done last closes: asked once the lock is free, neither can
        miss the other."""
        if self._left.is_set() and self._working.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._working.release()

    @contextmanager
    def _in_step(self) -> Iterator[tuple[Joined, Commands]]:
        """An error inside that the peers do not excuse ends what they have together."""
        joined, commands = self._joined, self._commands
        if joined is None or commands is None:
            raise TaskFault("rank_lost", "this process is none of a trainer's ranks, or no longer")
        try:
            yield joined, commands
        except BaseException as error:
            if joined.excuses(error):
                raise
            self._lost = True
            joined.say_lost()
            self._close()
            if joined.is_loss(error) and not isinstance(error, TaskFault):
                reason = str(error).partition(". ")[0]
                raise TaskFault("rank_lost", f"rank {joined.rank} has lost another: {reason}") from error
            raise

    def _close(self) -> None:
        joined, self._joined, self._commands = self._joined, None, None
        if joined is not None:
            joined.close()
