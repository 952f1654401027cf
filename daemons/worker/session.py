"""A worker's session with the driver: greeting, joined, silent. Pure; times are handed in, in seconds.

Owns the session id and the heartbeat numbers. Invariant: what was sent under an older session is never answered under
a newer one: a message whose session is not the current one is not for us.
"""

from digend.wire.workers import Welcome

FIRST_DELAY_S = 0.5
LAST_DELAY_S = 5.0
SAY_SO_EVERY = 12
"""HELLOs without an answer between two log lines."""


class Session:
    """`id` is None while there is none."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.epoch = 0
        self.heartbeat_s = 1.0
        self._seq = 0
        self._heard_s = 0.0
        self._hellos = 0
        self._delay_s = FIRST_DELAY_S
        self._pause = False

    def welcome(self, message: Welcome, now_s: float) -> None:
        self.id, self.epoch, self.heartbeat_s = message.session, message.epoch, message.heartbeat_s
        self._seq = self._hellos = 0
        self._heard_s = now_s
        self._pause = True

    def leave(self) -> None:
        """The session is over; HELLO is said again."""
        self.id = None

    def pause_s(self) -> float:
        """How long to wait before the next HELLO, where sessions end before a single heartbeat is answered."""
        return self._delay_s if self._pause else 0.0

    def greeted(self) -> tuple[float, bool]:
        """A HELLO was sent: how long to wait for the answer, and whether it is time to say that we wait."""
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, LAST_DELAY_S)
        self._hellos += 1
        return delay_s, self._hellos % SAY_SO_EVERY == 2

    def beat(self) -> int:
        """Number of the next heartbeat."""
        self._seq += 1
        return self._seq

    def heard(self, now_s: float) -> None:
        """The driver answered a heartbeat: the session works, so the next one may be asked for at once."""
        self._heard_s = now_s
        self._delay_s = FIRST_DELAY_S
        self._pause = False

    def silent(self, now_s: float, lost_s: float) -> bool:
        """Joined, but not heard of for longer than `lost_s`."""
        return self.id is not None and now_s - self._heard_s > lost_s
