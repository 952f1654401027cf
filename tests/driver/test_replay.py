"""Replay beside the process: what a difference is told as."""

from broker.commands import Command, RevokeLease, WakeAt
from broker.events import Tick
from daemons.driver import packing
from daemons.driver.journal import Batch
from daemons.driver.replay import Divergence


def batch(*commands: Command) -> Batch:
    return Batch(7, 2, 10, (Tick(),), packing.packed(commands))


def test_a_field_that_differs_is_named_with_both_values() -> None:
    then = batch(RevokeLease(session="s1.1", lease="1.1", reason="late"), WakeAt(at_ns=5))
    now = batch(RevokeLease(session="s1.1", lease="1.1", reason="late"), WakeAt(at_ns=6)).commands
    said = str(Divergence(then, now))
    assert said == "segment 2, batch 7 (Tick): 2 commands then, 2 now; command 1: WakeAt.at_ns was 5, is 6"


def test_other_types_and_other_counts_are_named() -> None:
    then = batch(WakeAt(at_ns=5))
    revoked = packing.packed([RevokeLease(session="s", lease="l", reason="r")])
    assert str(Divergence(then, revoked)).endswith("command 0: WakeAt then, RevokeLease now")
    assert str(Divergence(then, packing.packed([]))).endswith("1 commands then, 0 now")
