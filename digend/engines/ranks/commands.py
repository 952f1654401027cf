"""Numbered commands of rank 0 to the other ranks: a task and the tensors that it needs.

Owns their form: a verb goes into the store under the command's number, where the others look for it as long as nothing
is asked of them; of "run", header (msgpack) and tensors follow over the gloo group as bytes. Invariants: every rank
reads every command once, in order; another number than the next one is an error. Only "run" waits for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import msgpack

from digend.engines.protocols import TaskFault
from digend.engines.ranks.bundles import Blobs, pack, unpack
from digend.wire.codec import decode, encode
from digend.wire.tasks import TaskBody

if TYPE_CHECKING:
    from digend.engines.ranks.joined import Joined

_TASKS = get_args(get_args(TaskBody)[0])


@dataclass(frozen=True, slots=True)
class Command:
    """`verb`: run (a task), end (a job), leave."""

    verb: str
    task: TaskBody | None = None
    job: str = ""
    blobs: Blobs | None = None


class Commands:
    """One rank's end of them."""

    def __init__(self, peers: Joined) -> None:
        self._peers = peers
        self._number = 0

    def give(self, command: Command) -> None:
        """Rank 0: to all others."""
        self._number += 1
        self._peers.store.set(_key(self._number), f"{command.verb} {command.job}")
        self._peers.store.delete_key(_key(self._number - 1))
        if command.task is not None:
            self._peers.share(msgpack.packb([self._number, encode(command.task)]))
            self._peers.share(pack(command.blobs or {}))

    def take(self, limit_s: float, meanwhile: Callable[[], None]) -> Command:
        """The others: the next one, however long that takes within the limit."""
        self._number += 1
        key = _key(self._number)
        self._peers.wait([key], limit_s, meanwhile)
        verb, _, job = self._peers.store.get(key).decode().partition(" ")
        return self._task() if verb == "run" else Command(verb, job=job)

    def _task(self) -> Command:
        number, task = msgpack.unpackb(self._peers.share(b""))
        if number != self._number:
            raise TaskFault("rank_lost", f"rank 0 gave command {number}, expected {self._number}")
        blobs = unpack(self._peers.share(b""))
        return Command("run", decode(task, _TASKS, limit=None), blobs=blobs)


def _key(number: int) -> str:
    return f"command/{number}"
