"""Leaving from one thread what another is in the middle of; no peers, no process."""

import threading
from typing import Any

from digend.engines.ranks.commands import Command
from digend.engines.ranks.membership import Membership

TIMEOUT_S = 30.0


class Left:
    """Peers of which only that they were left is known."""

    rank, size, closed = 0, 2, False

    def close(self) -> None:
        self.closed = True


class Held:
    """Commands of which the first is not told until the test says so."""

    def __init__(self) -> None:
        self.begun, self.may_go = threading.Event(), threading.Event()

    def give(self, command: Command) -> None:
        self.begun.set()
        assert self.may_go.wait(TIMEOUT_S)


def test_who_leaves_while_the_end_of_a_job_is_told_has_left_afterwards() -> None:
    membership, peers, commands = Membership("cpu"), Left(), Held()
    inside: Any = membership
    inside._joined, inside._commands = peers, commands
    telling = threading.Thread(target=membership.end, args=("j",))
    telling.start()
    assert commands.begun.wait(TIMEOUT_S)
    membership.leave()
    commands.may_go.set()
    telling.join(TIMEOUT_S)
    assert peers.closed
    assert membership.peers.size == 1
