"""A strategy under a stopwatch: how long each search took and what it looked at. The core itself has no clock."""

from time import perf_counter

from broker.schedule.choice import Choice, Searching
from broker.strategies import Answer, TrainerView


class Timed:
    """Answers as `strategy` does. `milliseconds`: one figure a search; `states`: expanded in all of them."""

    def __init__(self, strategy: Searching) -> None:
        self._strategy = strategy
        self.milliseconds: list[float] = []
        self.states = 0
        self.exhausted = 0

    def decide(self, view: TrainerView) -> Answer:
        start = perf_counter()
        choice: Choice = self._strategy.search(view)
        if choice.states:
            self.milliseconds.append((perf_counter() - start) * 1e3)
            self.states += choice.states
            self.exhausted += choice.exhausted
        return choice.answer
