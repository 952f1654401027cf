"""`now` never decreases and stands still while held."""

from daemons.driver.clock import Clock


class Hands:
    """A wall clock and a monotonic one that tests move."""

    def __init__(self) -> None:
        self.wall = 1_000
        self.mono = 50

    def clock(self, last_ns: int = 0) -> Clock:
        return Clock(last_ns, wall=lambda: self.wall, monotonic=lambda: self.mono)


def test_it_starts_at_the_wall_clock_and_follows_the_monotonic_one() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall, hands.mono = 5, 80
    assert clock.now_ns() == 1_030


def test_a_wall_clock_that_was_set_back_does_not_take_time_back() -> None:
    hands = Hands()
    clock = hands.clock(last_ns=9_000)
    assert clock.now_ns() == 9_000
    hands.mono += 7
    assert clock.now_ns() == 9_007


def test_it_stands_still_while_held_and_goes_on_from_there() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.mono += 10
    clock.hold()
    hands.mono += 1_000_000
    assert clock.now_ns() == 1_010
    clock.resume()
    hands.mono += 3
    assert clock.now_ns() == 1_013
    clock.resume()
    assert clock.now_ns() == 1_013
