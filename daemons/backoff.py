"""How long to wait before a program that died is started again. Pure arithmetic: no clock, no process."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `last_s`; a program that lived for `steady_s` begins anew. Seconds."""

    first_s: float = 0.5
    last_s: float = 30.0
    steady_s: float = 60.0
    _next_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._next_s = self.first_s

    def delay(self, alive_s: float) -> float:
        """The wait after a program died having lived for `alive_s`."""
        if alive_s >= self.steady_s:
            self._next_s = self.first_s
        now = self._next_s
        self._next_s = min(2 * now, self.last_s)
        return now
