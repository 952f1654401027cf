from daemons.backoff import Backoff


def test_doubles_to_a_limit_and_begins_anew() -> None:
    backoff = Backoff()
    assert [backoff.delay(1.0) for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.delay(59.9) == 30.0
    assert [backoff.delay(60.0), backoff.delay(1.0)] == [0.5, 1.0]
