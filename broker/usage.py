"""Worker time that a user had lately: what fair order goes by. Halves every day, in whole nanoseconds.

Integers, so that every machine that replays a journal gets the same order.
"""

from dataclasses import dataclass

HALF_LIFE_NS = 24 * 3600 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """`ns` nanoseconds of workers, as of `at_ns`."""

    ns: int = 0
    at_ns: int = 0

    def at(self, now_ns: int) -> int:
        """What is left of it at a later instant: exact after whole half-lives, on a straight line between two."""
        halvings, rest = divmod(max(0, now_ns - self.at_ns), HALF_LIFE_NS)
        return (self.ns >> min(halvings, 128)) * (2 * HALF_LIFE_NS - rest) // (2 * HALF_LIFE_NS)

    def plus(self, span_ns: int, now_ns: int) -> "Usage":
        return Usage(self.at(now_ns) + span_ns, now_ns)
