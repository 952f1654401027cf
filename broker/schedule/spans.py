"""Who did what and when: the timeline of a simulated run, in ticks."""

from dataclasses import dataclass

GENERATOR, TRAINER = "generator", "trainer"


def server(at: int) -> str:
    return f"reward/{at}"


@dataclass(frozen=True, slots=True)
class Span:
    """`label`: generate, assist, score, update, commit or switch; `step`: the global step it is for. A switch is the
    front of the trainer's task after it."""

    worker: str
    label: str
    step: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bubble:
    """A worker idles with work outstanding. The causes are those of the live core."""

    worker: str
    start: int
    end: int
    cause: str


class Timeline:
    """Collects spans and bubbles; bubbles of one cause that touch are one."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bubbles: list[Bubble] = []
        self._idle: dict[str, tuple[int, str]] = {}

    def work(self, worker: str, label: str, step: int, start: int, end: int) -> None:
        if end > start:
            self.spans.append(Span(worker, label, step, start, end))

    def state(self, worker: str, now: int, cause: str | None) -> None:
        """From `now` on the worker idles for a cause, or (None) works."""
        since = self._idle.get(worker)
        if since is not None and since[1] != cause:
            del self._idle[worker]
            if now > since[0]:
                self.bubbles.append(Bubble(worker, since[0], now, since[1]))
        if cause is not None and worker not in self._idle:
            self._idle[worker] = (now, cause)

    def close(self, now: int) -> None:
        """In the order of their beginnings."""
        for worker in list(self._idle):
            self.state(worker, now, None)
        self.bubbles.sort(key=lambda bubble: bubble.start)
