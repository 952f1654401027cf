"""Who did not get in lately at a socket with keys, in words: unlisted keys, and handshakes that broke off.

Owns the counts. Must not know sockets; times are handed in. Invariant: bounded, whatever comes; what is older than
`KEPT_S` is not told any more.
"""

from collections import deque

KEPT_S = 300.0
SUSPICIOUS = 3
"""Handshakes that broke off: fewer are a process that ended in the middle of one."""
MAX_KEYS = 10
_MAX_TIMES = 1000


class TurnedAway:
    """Of one socket."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[float, str]] = {}
        self._broken: deque[float] = deque(maxlen=_MAX_TIMES)

    def refused(self, public: str, address: str, now_s: float) -> None:
        """A key that is not listed, and where it came from."""
        self._keys.pop(public, None)
        self._keys[public] = (now_s, address)
        while len(self._keys) > MAX_KEYS:
            self._keys.pop(next(iter(self._keys)))

    def broke_off(self, now_s: float) -> bool:
        """A handshake that failed before a key was known. Whether it is the first that is suspicious."""
        before = self._num_broken(now_s)
        self._broken.append(now_s)
        return before < SUSPICIOUS <= before + 1

    def words(self, now_s: float) -> tuple[str, ...]:
        """A line for each key, and one for what has none."""
        found = [
            f"the key {public} of {address} was refused: it is not in the list (keys.toml)"
            for public, (at_s, address) in self._keys.items()
            if now_s - at_s < KEPT_S
        ]
        broken = self._num_broken(now_s)
        if broken >= SUSPICIOUS:
            num = f"{broken} or more" if broken >= _MAX_TIMES else str(broken)
            found.append(f"{num} handshakes failed in the last {KEPT_S / 60:g} minutes: {WHO}")
        return tuple(found)

    def _num_broken(self, now_s: float) -> int:
        return sum(now_s - at_s < KEPT_S for at_s in self._broken)


WHO = "some process has another key of the driver in its keys.toml, or is no process of digend"
"""What knocks and does not get as far as to show its own key."""
