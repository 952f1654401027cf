"""Limits for silent workers that change while the driver runs."""

from broker.core import Core
from broker.events import DriverStarted, LimitsChanged, Tick, WorkerHello
from broker.state import SECOND
from tests.broker.support import GENERATOR
from tests.broker.test_liveness import hello


def silent(seconds: int, *changes: LimitsChanged) -> Core:
    """A core whose only worker said hello and nothing since; the changes come a second later."""
    core = Core()
    core.step(0, [DriverStarted(epoch=1, torpid_s=4, lost_s=15), WorkerHello(session="s1", hello=hello())])
    core.step(SECOND, list(changes))
    for second in range(2, seconds + 1):
        core.step(second * SECOND, [Tick()])
    return core


def test_a_longer_limit_keeps_a_worker() -> None:
    patient = LimitsChanged(torpid_s=30, lost_s=60, rejoin_s=20)
    assert GENERATOR not in silent(20).state.workers
    assert not silent(20, patient).state.workers[GENERATOR].torpid


def test_a_shorter_limit_holds_at_once() -> None:
    assert GENERATOR in silent(3).state.workers
    assert GENERATOR not in silent(3, LimitsChanged(torpid_s=1, lost_s=2, rejoin_s=20)).state.workers
