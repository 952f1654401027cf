"""What is gathered between two turns."""

from broker.events import Tick, WorkerBeat, WorkerGone
from daemons.driver.draft import Draft


def beat(session: str, done: int) -> WorkerBeat:
    return WorkerBeat(session=session, lease="l", done=done)


def test_events_keep_their_order_and_what_repeats_does_not_pile_up() -> None:
    draft = Draft()
    assert draft.empty
    gone = WorkerGone(session="b", reason="r")
    for event in (Tick(), beat("a", 1), beat("a", 2), beat("b", 1), gone, beat("a", 3), Tick()):
        draft.add(event)
    assert draft.events == [Tick(), beat("a", 2), beat("b", 1), gone, beat("a", 3)]
    assert not draft.empty
