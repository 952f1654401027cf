"""The session's bookkeeping, on a clock that the test holds."""

from daemons.worker.session import FIRST_DELAY_S, LAST_DELAY_S, Session
from digend.wire.workers import Welcome


def welcome(session: str) -> Welcome:
    return Welcome(session=session, epoch=1, heartbeat_s=1.0)


def test_hello_backs_off_to_a_limit() -> None:
    session = Session()
    assert [session.greeted()[0] for _ in range(6)] == [FIRST_DELAY_S, 1.0, 2.0, 4.0, LAST_DELAY_S, LAST_DELAY_S]


def test_it_says_once_a_while_that_it_waits() -> None:
    session = Session()
    said = [session.greeted()[1] for _ in range(26)]
    assert sum(said) == 3
    assert not said[0], "the first answer may still come"


def test_silence_counts_from_the_last_answer() -> None:
    session = Session()
    assert not session.silent(100.0, 15.0), "without a session nobody is silent"
    session.welcome(welcome("a"), 100.0)
    session.heard(110.0)
    assert not session.silent(125.0, 15.0)
    assert session.silent(125.1, 15.0)


def test_sessions_that_end_at_once_are_not_asked_for_in_a_hot_loop() -> None:
    session = Session()
    pauses = []
    for _ in range(4):
        pauses.append(session.pause_s())
        session.greeted()
        session.welcome(welcome("a"), 0.0)
        session.leave()
    assert pauses == [0.0, 1.0, 2.0, 4.0]
    session.welcome(welcome("b"), 0.0)
    session.heard(1.0)
    session.leave()
    assert session.pause_s() == 0.0
